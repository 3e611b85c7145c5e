/// The controller's side of a guard: what the world outside may reach instead of CAF's own port.
#pragma once

#include <troupe/actors/transport/guard_credentials.hpp>
#include <troupe/actors/transport/guard_event.hpp>
#include <troupe/actors/transport/guard_socket.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace troupe {

/// What a listener is made with.
struct guard_listener_options {
  guard_mode mode = guard_mode::plain;
  std::string address = "127.0.0.1"; ///< Of this machine: a name or an IP address.
  std::uint16_t port = 0;            ///< 0: any that is free.
  /// Makes a connection to what is guarded: a stream socket that is connected or connecting; empty, with errno set,
  /// where there is none. Called by the guard's thread, for connections that have proved that they know the token.
  std::function<guard_socket()> connect_inside{};
  guard_credentials credentials{};
  guard_limits limits{};
  guard_event_sink on_event{};
};

/// Lets those in who show a certificate of our CA (mutual_tls) and know the join token, and passes their bytes on, BASP
/// frame by frame within limits.frame_bytes.
///
/// Order: once made, it listens; what it guards may come later, until then dialers are told so.
/// Lifetime: the destructor stops it. Threads: one of its own; members any, one at a time.
/// Errors: invalid_argument for plain beyond loopback (SEC-1), for an address or port that cannot be had and for
/// credentials that cannot work; missing for files that cannot be read.
class guard_listener {
public:
  explicit guard_listener(guard_listener_options options);
  guard_listener(const guard_listener&) = delete;
  guard_listener& operator=(const guard_listener&) = delete;
  ~guard_listener();

  /// Where it listens.
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// As "10.0.0.1:7000".
  [[nodiscard]] const std::string& address() const noexcept;

  /// Closes every connection and returns when its thread has ended. Not from on_event. A second call does nothing.
  void stop() noexcept;

private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

} // namespace troupe
