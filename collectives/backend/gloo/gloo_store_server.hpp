/// A small key-value store over TCP, through which the ranks of a formation exchange their addresses.
#pragma once

#include <troupe/collectives/backend/gloo/gloo_bell.hpp>
#include <troupe/collectives/backend/gloo/gloo_door.hpp>
#include <troupe/collectives/backend/gloo/gloo_wire.hpp>
#include <troupe/collectives/backend/gloo/open_file.hpp>
#include <troupe/device/threads/worker.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// Holds the stores of all formations that one backend has opened. One thread serves them; it runs while there are any.
///
/// A client must present the secret of a formation within five seconds. It can then reach only the keys of that
/// formation. Sizes are bounded (gloo_wire.hpp); a client that exceeds a bound or breaks the protocol is disconnected.
/// A formation ends when all expected ranks have reported that they have formed, or after ten minutes. Threads: safe
/// from any.
class gloo_store_server {
public:
  explicit gloo_store_server(socket_address interface) noexcept;
  gloo_store_server(const gloo_store_server&) = delete;
  gloo_store_server& operator=(const gloo_store_server&) = delete;
  /// Closes all connections.
  ~gloo_store_server();

  /// Opens a formation. Errors: invalid_argument (the address is not one of this machine), internal.
  [[nodiscard]] gloo_door open();

private:
  using clock = std::chrono::steady_clock;
  struct formation;
  struct visitor;
  using visitor_list = std::vector<std::unique_ptr<visitor>>;

  void listen();
  void serve();
  void forget_old(clock::time_point now);
  void let_in(visitor_list& all, clock::time_point now);
  [[nodiscard]] bool converse(visitor& one, short seen);
  [[nodiscard]] bool understand(visitor& one);
  [[nodiscard]] bool greet(visitor& one);
  [[nodiscard]] bool obey(visitor& one, const gloo_wire::heading& wish, const std::byte* content);
  void answer_waiting(visitor_list& all);
  [[nodiscard]] clock::time_point next_deadline(const visitor_list& all);

  const socket_address interface_;
  gloo_bell bell_;
  std::mutex guard_; ///< Protects the members below. Never held while a socket is used.
  std::vector<std::shared_ptr<formation>> formations_;
  socket_address where_{}; ///< Includes the port.
  bool serving_ = false;
  bool stopping_ = false;
  open_file listener_; ///< Used only by the thread while it serves.
  clock::time_point deaf_until_{};
  worker thread_;
};

} // namespace troupe
