/// The Gloo backend and its options: communicators between processes over TCP, which need no GPU, for tests, CI and CPU
/// clusters. Does not include Gloo's headers.
#pragma once

#include <troupe/device/enum_names.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace troupe {

class backend;

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

/// Returns whether this troupe was built with Gloo.
[[nodiscard]] bool has_gloo() noexcept;

/// Creates a backend whose communicators connect ranks over TCP, in one process or several. They serve devices of a
/// mock_driver or, with gloo_memory::device, of any driver.
///
/// Semantics: as NCCL's. Launches of a communicator run one after the other, in the order of the calls. Ranks that ask
/// for different operations wait indefinitely. If a peer has ended, or its communicator has failed or was aborted,
/// check() reports it as soon as an operation needs that peer. The ranks of a formation find each other through a
/// server in the process that made the unique id. The server keeps the formation for ten minutes, or until all ranks
/// have formed.
/// create() errors: invalid_argument (rank, world size, a unique id of another backend; with gloo_memory::host, a
/// device of another driver than the mock).
/// Errors: missing (built without Gloo), invalid_argument (options).
[[nodiscard]] std::shared_ptr<backend> make_gloo_backend(gloo_options options = {});

} // namespace troupe
