/// Host memory that is set aside so that requests are still answered when the process can get no more.
#pragma once

#include <troupe/device/error.hpp>

#include <cstddef>

namespace troupe {

/// An answer needs a little memory: a message, an error's words. It is needed most when there is none. While one of
/// these lives, an allocation by `operator new` that fails anywhere in the process takes a piece of the reserve and is
/// tried again; from then on new requests are refused (host_memory_is_short()) until the reserve could be filled again.
/// So what is left of it serves those that are pending. (docs/design/0055-limits.md)
///
/// It is address space that nobody has written to: it costs no memory before it is used. It installs a
/// std::new_handler, which calls the one before it when the reserve is used up, and takes it away with the last of
/// these. Where the program installs another one later, that one decides.
/// Threads: any.
class memory_reserve {
public:
  static constexpr std::size_t piece_count = 8;
  static constexpr std::size_t piece_bytes = std::size_t{2} << 20U;

  /// Errors: out_of_memory.
  memory_reserve();
  memory_reserve(const memory_reserve&) = delete;
  memory_reserve& operator=(const memory_reserve&) = delete;
  ~memory_reserve();
};

/// Whether a piece of the reserve has been used and cannot be had again. Costs one load while there is enough.
[[nodiscard]] bool host_memory_is_short() noexcept;
/// What a request is told meanwhile.
[[nodiscard]] error no_host_memory();

} // namespace troupe
