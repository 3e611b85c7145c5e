/// The one-shot kernels: for CUDA in one_shot_kernels.cu, for the mock in one_shot_mock.cpp.
#pragma once

#include <troupe/device/kernel.hpp>

namespace troupe {

/// Returns the kernel for communicators of \p ranks ranks whose argument is one_shot_arguments<\p capacity>, where
/// \p capacity is 1 or one_shot_entries. Precondition: 2 <= ranks <= one_shot_ranks.
[[nodiscard]] const kernel& one_shot_kernel(int ranks, unsigned capacity) noexcept;

/// Returns the address of the function for CUDA, or null if troupe was built without nvcc.
[[nodiscard]] const void* compiled_one_shot_kernel(int ranks, unsigned capacity) noexcept;

} // namespace troupe
