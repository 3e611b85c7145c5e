/// A process's side of a guard: connections of this process to the controller's guard.
#pragma once

#include <troupe/actors/transport/guard_credentials.hpp>
#include <troupe/actors/transport/guard_event.hpp>
#include <troupe/actors/transport/guard_socket.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace troupe {

/// What a dialer is made with.
struct guard_dialer_options {
  guard_mode mode = guard_mode::plain;
  std::string host = "127.0.0.1"; ///< Where the controller's guard is: a name, looked up once, or an IP address.
  std::uint16_t port = 0;         ///< Its port.
  guard_credentials credentials{};
  guard_limits limits{};
  guard_event_sink on_event{};
};

/// Makes connections through the controller's guard. Nothing listens in this process, so no other one can use its
/// certificate and token. A connection that could not be made ends, and \p last_failure() says why.
///
/// Lifetime: the destructor stops it. Threads: one of its own; connect and last_failure any, stop one at a time.
/// Errors: invalid_argument for plain beyond loopback (SEC-1), for a host that there is none of and for credentials
/// that cannot work; missing for files that cannot be read. That nobody answers is no error of the constructor.
class guard_dialer {
public:
  explicit guard_dialer(guard_dialer_options options);
  guard_dialer(const guard_dialer&) = delete;
  guard_dialer& operator=(const guard_dialer&) = delete;
  ~guard_dialer();

  /// One end of a new connection, at once: what is written there waits until the controller's guard has admitted it.
  /// Errors: internal (no descriptors left).
  [[nodiscard]] guard_socket connect();

  /// Why the latest connection failed, as a sentence for people: "the controller at 10.0.0.1:7000 refused the join
  /// token". Its text is empty where none has failed since the latest one that was admitted. It is set before the
  /// failed connection is closed.
  [[nodiscard]] guard_fault last_failure() const;

  /// Closes every connection and returns when its thread has ended. Not from on_event. A second call does nothing.
  void stop() noexcept;

private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

} // namespace troupe
