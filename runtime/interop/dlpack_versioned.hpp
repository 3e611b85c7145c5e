/// DLPack's tensor with a version (1.0), for who makes one or looks into it: packaged headers often lack it. Needs
/// DLPack's header, of any age; where there is none, this declares nothing. (docs/interop.md)
#pragma once

#if __has_include(<dlpack/dlpack.h>)

#include <dlpack/dlpack.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if !defined(DLPACK_MAJOR_VERSION) || DLPACK_MAJOR_VERSION < 1
/// What a capsule called "dltensor_versioned" holds. Source: DLPack's C API, DLManagedTensorVersioned.
struct DLManagedTensorVersioned {
  struct {
    std::uint32_t major, minor;
  } version;                                  ///< First, in every version: another major one has another layout behind.
  void* manager_ctx;                          ///< Its maker's.
  void (*deleter)(DLManagedTensorVersioned*); ///< Null: there is nothing to delete.
  std::uint64_t flags;
  DLTensor dl_tensor;
};
#endif

namespace troupe {

/// Of DLManagedTensorVersioned::flags: it must not be written.
inline constexpr std::uint64_t dlpack_read_only = 1;
/// The same: it is a copy that the producer has made for this consumer, who alone sees what is written to it.
inline constexpr std::uint64_t dlpack_is_copied = 2;

// As everybody else has it, whoever declared it.
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
