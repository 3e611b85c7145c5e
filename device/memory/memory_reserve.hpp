/// Reserves host memory so that requests are still answered when the process can get no more.
#pragma once

#include <troupe/device/error.hpp>

#include <cstddef>

namespace troupe {

/// Keeps memory for answers: an answer needs a little memory (a message, the text of an error), also when the process
/// has run out of it. While an object of this class lives, an `operator new` that fails anywhere in the process
/// releases a piece of the reserve and is tried again. From then on new requests are refused (host_memory_is_short())
/// until the reserve could be refilled. The rest of the reserve therefore serves the pending requests.
/// (docs/design/0055-recovery-reserves.md)
///
/// The reserve is untouched address space, so it uses no memory before it is needed. The first object installs a
/// std::new_handler, which calls the previous handler when the reserve is used up. The last object removes it. A
/// handler that the program installs later takes precedence.
/// Threads: any.
class memory_reserve {
public:
  static constexpr std::size_t piece_count = 8;
  static constexpr std::size_t piece_bytes = std::size_t{2} << 20U;

  /// Fills the reserve. Errors: out_of_memory.
  memory_reserve();
  memory_reserve(const memory_reserve&) = delete;
  memory_reserve& operator=(const memory_reserve&) = delete;
  ~memory_reserve();
};

/// Returns whether a piece of the reserve has been used and could not be refilled. Costs one load while the reserve is
/// complete.
[[nodiscard]] bool host_memory_is_short() noexcept;
/// Returns the error for requests that are refused while host_memory_is_short().
[[nodiscard]] error no_host_memory();

} // namespace troupe
