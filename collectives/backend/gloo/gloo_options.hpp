/// What can be chosen of the gloo backend, without Gloo's headers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// Whose memory requests have.
enum class gloo_memory : std::uint8_t {
  host,   ///< Pretend devices', where Gloo reads and writes itself.
  device, ///< GPUs', or any other driver's: copied to pinned host memory and back (host_staged_backend.hpp).
};
[[nodiscard]] std::string_view to_string(gloo_memory memory) noexcept;
/// Errors: invalid_argument, naming the choices.
[[nodiscard]] gloo_memory parse_gloo_memory(std::string_view name);

/// The same for all worlds of a process.
struct gloo_options {
  /// Where this process is reached: an IPv4 or IPv6 address, in numbers, of an interface of this machine. Sockets are
  /// bound to it, and other ranks are told of it. Beyond loopback nothing is encrypted: docs/gloo.md.
  std::string interface_address = "127.0.0.1";
  gloo_memory memory = gloo_memory::host;

  friend bool operator==(const gloo_options&, const gloo_options&) = default;
};

/// Throws invalid_argument for an address that is none, or that no peer could connect to.
void check(const gloo_options& options);

} // namespace troupe
