/// Lists the memory that is undefined if it is unknown whether an operation has run (ONE-2).
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <memory>

namespace troupe {

/// Returns the ranges that \p what writes on rank \p self, which works on device \p where: the exact range of each
/// buffer, including host memory and results in place. For a group, the ranges of all parts. For a replay, the memory
/// that its requests write on \p where and the memory that the client made the plan keep there, because the client's
/// own kernels may write it. Returns null if the list cannot be allocated.
[[nodiscard]] std::shared_ptr<const undefined_buffers> undefined_ranges(const operation& what, rank self,
                                                                        int world_size, device_id where) noexcept;

} // namespace troupe
