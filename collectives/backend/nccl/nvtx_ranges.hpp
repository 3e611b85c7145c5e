/// Launches as NVIDIA's profilers show them: ranges named like the requests.
#pragma once

#include <troupe/collectives/pipeline/launch_observer.hpp>

#include <memory>

namespace troupe {

/// Marks each launch on its launcher's thread, in NVTX's domain "troupe": "all_reduce of 1024 f32, sum (lane decode,
/// request 7)", of several "8 together: …" by the first. The payload is their number of bytes. Null in a build without
/// CUDA's headers.
[[nodiscard]] std::shared_ptr<launch_observer> make_nvtx_ranges();

/// Whether a profiler has put itself in NVTX's way (NVTX_INJECTION64_PATH); without one, ranges go nowhere.
[[nodiscard]] bool nvtx_is_heard() noexcept;

} // namespace troupe
