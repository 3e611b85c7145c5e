/// Provides move-only owners of sockets. All sockets are non-blocking and close-on-exec.
#pragma once

#include <troupe/actors/transport/guard_address.hpp>

#include <chrono>
#include <utility>

namespace troupe {

/// Owns one descriptor or none.
class guard_socket {
public:
  guard_socket() noexcept = default;
  explicit guard_socket(int descriptor) noexcept : descriptor_{descriptor} {}
  guard_socket(guard_socket&& other) noexcept : descriptor_{std::exchange(other.descriptor_, -1)} {}
  guard_socket& operator=(guard_socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~guard_socket();

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  /// Releases the descriptor to the caller, who must close it.
  [[nodiscard]] int release() noexcept { return std::exchange(descriptor_, -1); }
  [[nodiscard]] explicit operator bool() const noexcept { return descriptor_ >= 0; }

private:
  int descriptor_ = -1;
};

/// Returns a listening socket. Errors: invalid_argument if the port is in use or this machine has no such address.
[[nodiscard]] guard_socket listen_at(const guard_address& where);

/// Returns two sockets that are connected to each other and that no other process can reach. Errors: internal (the
/// process has no descriptors left).
[[nodiscard]] std::pair<guard_socket, guard_socket> connected_sockets();

/// Starts to connect. The socket becomes writable when connecting has ended. Returns an empty socket and sets errno if
/// it failed at once.
[[nodiscard]] guard_socket begin_connect(const guard_address& where) noexcept;

/// Returns the result of connecting: 0 or an errno. Reading it resets it.
[[nodiscard]] int connect_result(int descriptor) noexcept;

/// Disables send delays, and detects within \p patience that the other machine is gone.
void watch_peer(int descriptor, std::chrono::milliseconds patience) noexcept;

/// Describes an errno of connecting for people: "connection refused".
[[nodiscard]] std::string connect_failure_text(int native_code);

} // namespace troupe
