/// Memory with undefined contents, as listed in an error with unknown outcome (ONE-2).
#pragma once

#include <troupe/device/identity.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// A memory range that a request with unknown outcome may have written, fully, partly or not at all.
struct undefined_buffer {
  troupe::rank rank;                 ///< The rank whose part of the request writes it.
  std::optional<device_id> device{}; ///< The device that holds it; empty for host memory.
  const void* address = nullptr;     ///< Address of the first byte, as returned by buffer::data().
  std::size_t size_bytes = 0;

  friend bool operator==(const undefined_buffer&, const undefined_buffer&) = default;
};

/// Ranges in ascending order of ranks and, within a rank, in the order of the operation's arguments.
using undefined_buffers = std::vector<undefined_buffer>;

/// Returns a description, e.g. "4096 bytes at 0x7f00 on device 1 (rank 1)".
[[nodiscard]] std::string describe(const undefined_buffer& one);
/// Returns a list of descriptions: at most the first few, then the number of remaining ones.
[[nodiscard]] std::string describe(const undefined_buffers& all);

} // namespace troupe
