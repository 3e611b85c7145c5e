/// Shows launches in NVIDIA's profilers as ranges that are named like the requests.
#pragma once

#include <troupe/collectives/backend/launch_observer.hpp>

#include <memory>

namespace troupe {

/// Creates an observer that marks each launch on its launcher's thread, in NVTX's domain "troupe": "all_reduce of 1024
/// f32, sum (lane decode, request 7)". Several requests are marked "8 together: …" with the name of the first. The
/// range's payload is the number of bytes of the requests. Returns null in a build without CUDA's headers.
[[nodiscard]] std::shared_ptr<launch_observer> make_nvtx_ranges();

/// Returns whether a profiler intercepts NVTX (NVTX_INJECTION64_PATH). Without one, ranges have no effect.
[[nodiscard]] bool nvtx_is_heard() noexcept;

} // namespace troupe
