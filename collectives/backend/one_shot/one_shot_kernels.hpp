/// The one-shot kernels: for CUDA in one_shot_kernels.cu, for the mock in one_shot_mock.cpp.
#pragma once

#include <troupe/collectives/backend/one_shot/one_shot_table.hpp>
#include <troupe/device/kernel.hpp>

namespace troupe {

/// Returns a kernel for communicators of \p ranks ranks. Precondition: 2 <= ranks <= one_shot_ranks.
[[nodiscard]] const kernel& one_shot_kernel(int ranks, one_shot_form form) noexcept;

/// Returns the address of the function for CUDA, or null if troupe was built without nvcc.
[[nodiscard]] const void* compiled_one_shot_kernel(int ranks, one_shot_form form) noexcept;

} // namespace troupe
