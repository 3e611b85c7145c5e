/// A guard's thread: it waits for sockets and deadlines, and for nothing else.
#pragma once

#include <troupe/actors/transport/guard_socket.hpp>
#include <troupe/actors/transport/guarded_connection.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {

/// Accepts connections, or is given them, and moves them along until it is stopped.
class guard_loop {
public:
  /// Makes the connection of a socket that was accepted from \p peer, or that adopt() was given.
  using maker = std::function<std::unique_ptr<guarded_connection>(guard_socket, const guard_address& peer, time_point)>;

  /// Starts the thread. \p listening may be empty. \p terms outlive it. Errors: internal, where the system has no
  /// descriptors or threads left.
  guard_loop(guard_terms& terms, guard_socket listening, maker make);
  guard_loop(const guard_loop&) = delete;
  guard_loop& operator=(const guard_loop&) = delete;
  ~guard_loop();

  /// Takes a connected socket as if it had been accepted; closes it if the guard has been stopped. Threads: any.
  void adopt(guard_socket socket);

  /// Closes all sockets and ends the thread, within a turn of it. Threads: any but its own, one at a time. A second
  /// call does nothing.
  void stop() noexcept;

private:
  void run();
  void wake() noexcept;
  void wait_and_advance();
  void take_adopted(time_point now);
  void accept_all(time_point now);
  void take_in(guard_socket socket, const guard_address& peer, time_point now);
  void make_room();
  void advance(guarded_connection& one, time_point now);
  [[nodiscard]] int patience(time_point now) const;
  [[nodiscard]] std::size_t gather(time_point now);

  guard_terms& terms_;
  guard_socket listening_;
  guard_socket wake_; ///< An eventfd.
  maker make_;
  std::vector<std::unique_ptr<guarded_connection>> connections_; ///< Oldest first.
  std::vector<pollfd> looks_;
  std::vector<std::pair<std::size_t, std::size_t>> spans_; ///< Of looks_, which are each connection's.
  time_point accept_after_{}; ///< Nothing is accepted before, since descriptors had run out.
  std::mutex adopted_guard_;
  std::vector<guard_socket> adopted_; ///< Given, and not taken in yet.
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

} // namespace troupe
