/// The options of the Gloo backend.
#pragma once

#include <troupe/device/enum_names.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// The memory that contains the buffers of requests.
enum class gloo_memory : std::uint8_t {
  host,   ///< Memory of mock devices, which Gloo reads and writes directly.
  device, ///< Memory of GPUs or of any other driver: copied to pinned host memory and back (host_staged_backend.hpp).
};
/// Returns the kind of memory called \p name. Errors: invalid_argument, with the valid names.
[[nodiscard]] inline gloo_memory parse_gloo_memory(std::string_view name) {
  return parse_enum<gloo_memory>("memory for Gloo", name);
}

/// Options that are the same for all worlds of a process.
struct gloo_options {
  /// Address at which other ranks reach this process: a numeric IPv4 or IPv6 address of an interface of this machine.
  /// Sockets are bound to it, and the unique id contains it. Beyond loopback the traffic is not encrypted:
  /// docs/gloo.md.
  std::string interface_address = "127.0.0.1";
  gloo_memory memory = gloo_memory::host;

  friend bool operator==(const gloo_options&, const gloo_options&) = default;
};

/// Throws invalid_argument if the address cannot be parsed, or if no peer could connect to it.
void check(const gloo_options& options);

} // namespace troupe
