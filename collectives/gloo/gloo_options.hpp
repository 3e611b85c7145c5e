/// What can be chosen of the gloo backend, without Gloo's headers.
#pragma once

#include <string>

namespace troupe {

/// The same for all worlds of a process.
struct gloo_options {
  /// Where this process is reached: an IPv4 or IPv6 address, in numbers, of an interface of this machine. Sockets are
  /// bound to it, and other ranks are told of it. Beyond loopback nothing is encrypted: docs/gloo.md.
  std::string interface_address = "127.0.0.1";

  friend bool operator==(const gloo_options&, const gloo_options&) = default;
};

/// Throws invalid_argument for an address that is none, or that no peer could connect to.
void check(const gloo_options& options);

} // namespace troupe
