/// Memory whose contents nobody knows any more: what an error with unknown outcome lists (ONE-2).
#pragma once

#include <troupe/device/identity.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// One range that a request whose outcome is unknown may have written, fully, in part or not at all.
struct undefined_buffer {
  troupe::rank rank;                 ///< Whose part of the request writes it.
  std::optional<device_id> device{}; ///< Where it lives; none: host memory.
  const void* address = nullptr;     ///< Its first byte, as buffer::data() has it.
  std::size_t size_bytes = 0;

  friend bool operator==(const undefined_buffer&, const undefined_buffer&) = default;
};

/// In the order of ranks, and of a rank's in that of the operation's arguments.
using undefined_buffers = std::vector<undefined_buffer>;

/// "4096 bytes at 0x7f00 on device 1 (rank 1)".
[[nodiscard]] std::string describe(const undefined_buffer& one);
/// Those in a row, of many the first few and how many more there are.
[[nodiscard]] std::string describe(const undefined_buffers& all);

} // namespace troupe
