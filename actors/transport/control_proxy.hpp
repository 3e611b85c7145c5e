/// Puts a TLS proxy in front of the controller (proxy_listener), and connects a process to it (proxy_dialer). Peers
/// reach the proxy instead of CAF's own port.
#pragma once

#include <troupe/actors/transport/proxy_options.hpp>
#include <troupe/device/file_descriptor.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace troupe {

/// The options of a proxy_listener.
struct proxy_listener_options {
  proxy_mode mode = proxy_mode::plain;
  std::string address = "127.0.0.1"; ///< A host name or IP address of this machine.
  std::uint16_t port = 0;            ///< Port to listen on; 0: any free port.
  /// Connects to the service behind the proxy: returns a stream socket that is connected or connecting. On failure it
  /// returns an empty socket and sets errno. Called by the proxy's thread, after the peer has proved that it knows the
  /// token.
  std::function<file_descriptor()> connect_inside{};
  proxy_credentials credentials{};
  proxy_limits limits{};
  proxy_event_sink on_event{};
};

/// Admits peers that present a certificate of our CA (mutual_tls) and prove that they know the join token. It passes
/// their bytes on, one BASP frame at a time within limits.frame_bytes.
///
/// Order: it listens from its construction on. The service behind it may start later; until then dialers receive
/// join_verdict::unreachable.
/// Lifetime: the destructor stops it. Threads: it has one thread; its members may be called from any thread, one at a
/// time.
/// Errors: invalid_argument for plain mode beyond loopback (SEC-1), for an address or port that is not available and
/// for invalid credentials; missing for files that cannot be read.
class proxy_listener {
public:
  explicit proxy_listener(proxy_listener_options options);
  proxy_listener(const proxy_listener&) = delete;
  proxy_listener& operator=(const proxy_listener&) = delete;
  ~proxy_listener();

  /// Returns the port on which it listens.
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// Returns the address on which it listens, for example "10.0.0.1:7000".
  [[nodiscard]] const std::string& address() const noexcept;

  /// Closes all connections and returns when its thread has ended. Must not be called from on_event. A second call does
  /// nothing.
  void stop() noexcept;

private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

/// The options of a proxy_dialer.
struct proxy_dialer_options {
  proxy_mode mode = proxy_mode::plain;
  /// The host of the controller's proxy: a name, which is resolved once, or an IP address.
  std::string host = "127.0.0.1";
  std::uint16_t port = 0; ///< The port of the controller's proxy.
  proxy_credentials credentials{};
  proxy_limits limits{};
  proxy_event_sink on_event{};
};

/// Makes connections to the controller's TLS proxy. It opens no listening socket, so no other process can use this
/// process's certificate and token. A connection that cannot be made is closed, and \p last_failure() returns the
/// reason.
///
/// Lifetime: the destructor stops it. Threads: it has one thread; connect and last_failure may be called from any
/// thread, stop from one at a time.
/// Errors: invalid_argument for plain mode beyond loopback (SEC-1), for an unknown host and for invalid credentials;
/// missing for files that cannot be read. The constructor does not fail if no peer answers.
class proxy_dialer {
public:
  explicit proxy_dialer(proxy_dialer_options options);
  proxy_dialer(const proxy_dialer&) = delete;
  proxy_dialer& operator=(const proxy_dialer&) = delete;
  ~proxy_dialer();

  /// Returns one end of a new connection immediately. Bytes written there wait until the controller's proxy has
  /// admitted it.
  /// Errors: internal (no descriptors left).
  [[nodiscard]] file_descriptor connect();

  /// Returns why the latest connection failed, as a human-readable sentence: "the controller at 10.0.0.1:7000 refused
  /// the join token". Its text is empty if no connection has failed since the latest admitted one. It is set before the
  /// failed connection is closed.
  [[nodiscard]] proxy_fault last_failure() const;

  /// Closes all connections and returns when its thread has ended. Must not be called from on_event. A second call does
  /// nothing.
  void stop() noexcept;

private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

} // namespace troupe
