/// What a guard's thread knows of a connection, and what its connections know of the guard.
#pragma once

#include <troupe/actors/transport/guard_event.hpp>
#include <troupe/actors/transport/guard_limits.hpp>
#include <troupe/actors/transport/guard_socket.hpp>
#include <troupe/actors/transport/join_secret.hpp>
#include <troupe/actors/transport/openssl_owner.hpp>
#include <troupe/device/time.hpp>

#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// One connection on its way through a guard. Threads: the guard's.
class guarded_connection {
public:
  guarded_connection() = default;
  guarded_connection(const guarded_connection&) = delete;
  guarded_connection& operator=(const guarded_connection&) = delete;
  virtual ~guarded_connection() = default;

  /// Goes as far as it can without waiting.
  virtual void advance(time_point now) = 0;
  /// What it waits for; nothing that it does not.
  virtual void gather(std::vector<pollfd>& into) const = 0;
  /// When it wants to be advanced at the latest.
  [[nodiscard]] virtual time_point due() const noexcept = 0;
  /// Whether it could go on at once.
  [[nodiscard]] virtual bool has_more() const noexcept = 0;
  [[nodiscard]] virtual bool is_admitted() const noexcept = 0;
  /// Whether it may be destroyed, which closes its sockets.
  [[nodiscard]] virtual bool is_over() const noexcept = 0;
  /// Ends it now and reports why, unless it has been reported already.
  virtual void cut(guard_event_kind kind, const std::string& why) = 0;
};

/// What a guard's connections share. Threads: made by one, then used by the guard's.
struct guard_terms {
  guard_terms(guard_mode wanted, const guard_limits& bounds, std::string_view token, std::string peer_name)
    : mode{wanted}, limits{bounds}, secret{token}, expected_peer{std::move(peer_name)} {}

  void report(guard_event_kind kind, std::string peer, std::string text) const noexcept;
  /// The same about a connection that has not been admitted: at most limits.reports within limits.report_window, so
  /// that strangers cannot fill the owner's log. Those that are left out are counted, and the next window begins with
  /// the count.
  void report_stranger(guard_event_kind kind, std::string peer, std::string text) noexcept;

  guard_mode mode;
  guard_limits limits;
  join_secret secret;
  std::string expected_peer;
  openssl_owner<ssl_ctx_st> tls; ///< Null in plain mode.
  guard_event_sink on_event;
  std::function<guard_socket()> connect_inside; ///< A listener's.
  int admitted = 0;                             ///< How many connections are, now.

private:
  time_point window_end_{};    ///< Of the present report window.
  int reported_ = 0;           ///< About strangers, in this window.
  std::uint64_t left_out_ = 0; ///< In this window.
};

} // namespace troupe
