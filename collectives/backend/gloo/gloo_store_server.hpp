/// Where the ranks of a formation leave their addresses for each other: a small store of keys and values over TCP.
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

/// The stores of all formations that one backend has named, served by one thread, which is there while there are any.
///
/// Who connects must present a formation's secret within five seconds, and then reaches that formation's keys alone.
/// Sizes are bounded (gloo_wire.hpp); who breaks a bound or the protocol is dropped. A formation ends when all who were
/// to come have said that they have formed, or after ten minutes. Threads: safe from any.
class gloo_store_server {
public:
  explicit gloo_store_server(socket_address interface) noexcept;
  gloo_store_server(const gloo_store_server&) = delete;
  gloo_store_server& operator=(const gloo_store_server&) = delete;
  /// Drops all who are there.
  ~gloo_store_server();

  /// Begins a formation. Errors: invalid_argument (the address is none of this machine's), internal.
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
  std::mutex guard_; ///< Guards what follows; never held while a socket is used.
  std::vector<std::shared_ptr<formation>> formations_;
  socket_address where_{}; ///< With the port.
  bool serving_ = false;
  bool stopping_ = false;
  open_file listener_; ///< The thread's own while it serves.
  clock::time_point deaf_until_{};
  worker thread_;
};

} // namespace troupe
