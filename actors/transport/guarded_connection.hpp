/// Defines the interface between a TLS proxy's thread and its connections.
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

/// One connection of a TLS proxy. Threads: the proxy's.
class guarded_connection {
public:
  guarded_connection() = default;
  guarded_connection(const guarded_connection&) = delete;
  guarded_connection& operator=(const guarded_connection&) = delete;
  virtual ~guarded_connection() = default;

  /// Advances as far as possible without waiting.
  virtual void advance(time_point now) = 0;
  /// Appends the poll events that it waits for, and no others.
  virtual void gather(std::vector<pollfd>& into) const = 0;
  /// Returns the latest time of the next advance().
  [[nodiscard]] virtual time_point due() const noexcept = 0;
  /// Returns whether it could continue without waiting.
  [[nodiscard]] virtual bool has_more() const noexcept = 0;
  [[nodiscard]] virtual bool is_admitted() const noexcept = 0;
  /// Returns whether it may be destroyed, which closes its sockets.
  [[nodiscard]] virtual bool is_over() const noexcept = 0;
  /// Ends it now and reports why, unless it has been reported already.
  virtual void cut(guard_event_kind kind, const std::string& why) = 0;
};

/// The state that a proxy's connections share. Threads: created by one thread, then used by the proxy's.
struct guard_terms {
  guard_terms(guard_mode wanted, const guard_limits& bounds, std::string_view token, std::string peer_name)
    : mode{wanted}, limits{bounds}, secret{token}, expected_peer{std::move(peer_name)} {}

  void report(guard_event_kind kind, std::string peer, std::string text) const noexcept;
  /// Reports an event of a connection that has not been admitted: at most limits.reports within limits.report_window,
  /// so that unauthenticated peers cannot fill the owner's log. Further events are counted, and the next window begins
  /// with the count.
  void report_stranger(guard_event_kind kind, std::string peer, std::string text) noexcept;

  guard_mode mode;
  guard_limits limits;
  join_secret secret;
  std::string expected_peer;
  openssl_owner<ssl_ctx_st> tls; ///< Null in plain mode.
  guard_event_sink on_event;
  std::function<guard_socket()> connect_inside; ///< Set for a listener only.
  int admitted = 0;                             ///< Present number of admitted connections.

private:
  time_point window_end_{};    ///< End of the present report window.
  int reported_ = 0;           ///< Events of unadmitted connections reported in this window.
  std::uint64_t left_out_ = 0; ///< Events not reported in this window.
};

} // namespace troupe
