/// Handles to memory of other processes. In a request to all ranks of a world they are the operands of ranks in those
/// processes.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/memory/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// Refers to a range of memory that the process of a rank has exported (world::export_memory()). It can be sent to
/// other processes of the same world, as text or as its members, and holds no address: the exporter looks it up.
///
/// Lifetime: it does not own the memory. The exporter holds it until world::unexport() or the end of its lease, and
/// requests in flight hold it until their outcome (BUF-1). Later requests that name it are refused with stale_buffer,
/// and the error names the exporter. The same holds after the exporter's process has ended (BUF-2).
struct remote_buffer {
  rank exporter{};           ///< The number of the exporter's rank when it exported the memory. For messages only.
  std::uint64_t session = 0; ///< Identifies the exporter's process in the world.
  std::uint64_t id = 0;      ///< Identifies the memory in that process.
  std::size_t offset_bytes = 0;
  std::size_t size_bytes = 0;
  bool on_host = false; ///< Whether it is host memory; requests with it are then staged: see operand.

  /// Returns the range [\p from_bytes, \p from_bytes + \p length_bytes) of this one. Errors: invalid_argument if the
  /// range exceeds it.
  [[nodiscard]] remote_buffer slice(std::size_t from_bytes, std::size_t length_bytes) const;
  /// Returns the handle as an operand of a request.
  [[nodiscard]] buffer as_buffer() const;

  friend bool operator==(const remote_buffer&, const remote_buffer&) = default;
};

/// Returns the handle as text without spaces: exporter, session, id, offset and size in decimal ("2:4711:17:0:4096"),
/// and ":host" for host memory.
[[nodiscard]] std::string to_string(const remote_buffer& one);
/// Returns the handle that to_string() has written. Errors: invalid_argument.
[[nodiscard]] remote_buffer parse_remote_buffer(std::string_view text);

/// Returns whether \p one is memory of another process.
[[nodiscard]] bool is_remote(const buffer& one) noexcept;
/// Returns the handle of \p one. Precondition: is_remote(one).
[[nodiscard]] remote_buffer remote_of(const buffer& one);

inline constexpr std::size_t longest_export_name_bytes = 256;

} // namespace troupe
