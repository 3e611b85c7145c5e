/// Runs a TLS proxy's thread, which waits for sockets and deadlines and for nothing else.
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

/// Accepts connections, or receives them by adopt(), and advances them until it is stopped.
class guard_loop {
public:
  /// Creates the connection object for a socket that was accepted from \p peer or passed to adopt().
  using maker = std::function<std::unique_ptr<guarded_connection>(guard_socket, const guard_address& peer, time_point)>;

  /// Starts the thread. \p listening may be empty. \p terms must outlive it. Errors: internal, if the system has no
  /// descriptors or threads left.
  guard_loop(guard_terms& terms, guard_socket listening, maker make);
  guard_loop(const guard_loop&) = delete;
  guard_loop& operator=(const guard_loop&) = delete;
  ~guard_loop();

  /// Takes over a connected socket as if it had been accepted. Closes it if the proxy has been stopped. Threads: any.
  void adopt(guard_socket socket);

  /// Closes all sockets and ends the thread after its present iteration. Threads: any but its own, one at a time. A
  /// second call does nothing.
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
  std::vector<std::pair<std::size_t, std::size_t>> spans_; ///< The range in looks_ of each connection.
  time_point accept_after_{}; ///< No accept before this time, because descriptors had run out.
  std::mutex adopted_guard_;
  std::vector<guard_socket> adopted_; ///< Passed to adopt(), but not yet processed.
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

} // namespace troupe
