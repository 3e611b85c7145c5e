/// Accepts connections for the controller: the listening TLS proxy that peers reach instead of CAF's own port.
#pragma once

#include <troupe/actors/transport/guard_credentials.hpp>
#include <troupe/actors/transport/guard_event.hpp>
#include <troupe/actors/transport/guard_socket.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace troupe {

/// The options of a guard_listener.
struct guard_listener_options {
  guard_mode mode = guard_mode::plain;
  std::string address = "127.0.0.1"; ///< A name or an IP address of this machine.
  std::uint16_t port = 0;            ///< 0: any free port.
  /// Connects to the service behind the proxy: returns a stream socket that is connected or connecting. On failure it
  /// returns an empty socket and sets errno. Called by the proxy's thread, after the peer has proved that it knows the
  /// token.
  std::function<guard_socket()> connect_inside{};
  guard_credentials credentials{};
  guard_limits limits{};
  guard_event_sink on_event{};
};

/// Admits peers that present a certificate of our CA (mutual_tls) and prove that they know the join token. It passes
/// their bytes on, one BASP frame at a time within limits.frame_bytes.
///
/// Order: it listens from its construction on. The service behind it may start later; until then dialers get the answer
/// that it is unreachable.
/// Lifetime: the destructor stops it. Threads: it has one thread; its members may be called from any thread, one at a
/// time.
/// Errors: invalid_argument for plain mode beyond loopback (SEC-1), for an address or port that is not available and
/// for invalid credentials; missing for files that cannot be read.
class guard_listener {
public:
  explicit guard_listener(guard_listener_options options);
  guard_listener(const guard_listener&) = delete;
  guard_listener& operator=(const guard_listener&) = delete;
  ~guard_listener();

  /// Returns the port at which it listens.
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// Returns the address at which it listens, for example "10.0.0.1:7000".
  [[nodiscard]] const std::string& address() const noexcept;

  /// Closes all connections and returns when its thread has ended. Must not be called from on_event. A second call does
  /// nothing.
  void stop() noexcept;

private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

} // namespace troupe
