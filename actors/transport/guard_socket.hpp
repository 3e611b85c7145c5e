/// Owners of sockets. All are non-blocking and closed on exec.
#pragma once

#include <troupe/actors/transport/guard_address.hpp>

#include <chrono>
#include <utility>

namespace troupe {

/// Owns one descriptor, or none.
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
  /// Gives the descriptor to the caller, who closes it.
  [[nodiscard]] int release() noexcept { return std::exchange(descriptor_, -1); }
  [[nodiscard]] explicit operator bool() const noexcept { return descriptor_ >= 0; }

private:
  int descriptor_ = -1;
};

/// Listens. Errors: invalid_argument where the port is taken or this machine has no such address.
[[nodiscard]] guard_socket listen_at(const guard_address& where);

/// Two sockets that are connected to each other, and that no other process can reach. Errors: internal (the process has
/// no descriptors left).
[[nodiscard]] std::pair<guard_socket, guard_socket> connected_sockets();

/// Begins to connect; the socket is writable when that has ended. Empty where it failed at once, with errno set.
[[nodiscard]] guard_socket begin_connect(const guard_address& where) noexcept;

/// How connecting ended: 0 or an errno. Reading it resets it.
[[nodiscard]] int connect_result(int descriptor) noexcept;

/// Sends without delay, and finds out within \p patience that the other machine is gone.
void watch_peer(int descriptor, std::chrono::milliseconds patience) noexcept;

/// What an errno of connecting means, as people say it: "connection refused".
[[nodiscard]] std::string connect_failure_text(int native_code);

} // namespace troupe
