/// Declares DLPack's versioned tensor (1.0) for code that creates or inspects one, because packaged headers often lack
/// it. This requires DLPack's header in any version; without it, this header declares nothing. (docs/interop.md)
#pragma once

#if __has_include(<dlpack/dlpack.h>)

#include <dlpack/dlpack.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if !defined(DLPACK_MAJOR_VERSION) || DLPACK_MAJOR_VERSION < 1
/// The content of a capsule called "dltensor_versioned". Source: DLPack's C API, DLManagedTensorVersioned.
struct DLManagedTensorVersioned {
  struct {
    std::uint32_t major, minor;
  } version;                                  ///< The first member in every version; the rest depends on `major`.
  void* manager_ctx;                          ///< Owned by the producer.
  void (*deleter)(DLManagedTensorVersioned*); ///< Null: nothing to delete.
  std::uint64_t flags;
  DLTensor dl_tensor;
};
#endif

namespace troupe {

/// A flag of DLManagedTensorVersioned::flags: the tensor must not be written.
inline constexpr std::uint64_t dlpack_read_only = 1;
/// A flag of DLManagedTensorVersioned::flags: the producer copied the tensor for this consumer, so nobody else sees
/// writes to it.
inline constexpr std::uint64_t dlpack_is_copied = 2;

// The layout equals that of other declarations of this struct.
static_assert(std::is_standard_layout_v<DLManagedTensorVersioned>);
static_assert(offsetof(DLManagedTensorVersioned, manager_ctx) == 8);
static_assert(offsetof(DLManagedTensorVersioned, deleter) == 8 + sizeof(void*));
static_assert(offsetof(DLManagedTensorVersioned, flags) == 8 + 2 * sizeof(void*));
static_assert(offsetof(DLManagedTensorVersioned, dl_tensor) == 16 + 2 * sizeof(void*));
#if defined(DLPACK_FLAG_BITMASK_READ_ONLY) && defined(DLPACK_FLAG_BITMASK_IS_COPIED)
static_assert(DLPACK_FLAG_BITMASK_READ_ONLY == dlpack_read_only && DLPACK_FLAG_BITMASK_IS_COPIED == dlpack_is_copied);
#endif

} // namespace troupe

#endif
