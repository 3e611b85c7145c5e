/// Connects this process to the controller through a TLS proxy: the process's side.
#pragma once

#include <troupe/actors/transport/guard_credentials.hpp>
#include <troupe/actors/transport/guard_event.hpp>
#include <troupe/actors/transport/guard_socket.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace troupe {

/// The options of a guard_dialer.
struct guard_dialer_options {
  guard_mode mode = guard_mode::plain;
  /// The host of the controller's proxy: a name, which is looked up once, or an IP address.
  std::string host = "127.0.0.1";
  std::uint16_t port = 0; ///< The port of the controller's proxy.
  guard_credentials credentials{};
  guard_limits limits{};
  guard_event_sink on_event{};
};

/// Makes connections to the controller's TLS proxy. It does not listen in this process, so no other process can use its
/// certificate and token. A connection that cannot be made is closed, and \p last_failure() returns the reason.
///
/// Lifetime: the destructor stops it. Threads: it has one thread; connect and last_failure may be called from any
/// thread, stop from one at a time.
/// Errors: invalid_argument for plain mode beyond loopback (SEC-1), for an unknown host and for invalid credentials;
/// missing for files that cannot be read. The constructor does not fail if no peer answers.
class guard_dialer {
public:
  explicit guard_dialer(guard_dialer_options options);
  guard_dialer(const guard_dialer&) = delete;
  guard_dialer& operator=(const guard_dialer&) = delete;
  ~guard_dialer();

  /// Returns one end of a new connection at once. Bytes written there wait until the controller's proxy has admitted
  /// it.
  /// Errors: internal (no descriptors left).
  [[nodiscard]] guard_socket connect();

  /// Returns why the latest connection failed, as a sentence for people: "the controller at 10.0.0.1:7000 refused the
  /// join token". Its text is empty if no connection has failed since the latest admitted one. It is set before the
  /// failed connection is closed.
  [[nodiscard]] guard_fault last_failure() const;

  /// Closes all connections and returns when its thread has ended. Must not be called from on_event. A second call does
  /// nothing.
  void stop() noexcept;

private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

} // namespace troupe
