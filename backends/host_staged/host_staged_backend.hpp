/// Adapts a backend that works on host memory to device memory, by copying to the host and back.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>

#include <memory>

namespace troupe {

/// Makes a backend for devices of any driver from \p inner, which works on the memory of mock devices. Each launch
/// copies its inputs into pinned host memory, runs the inner operation there, and copies the results back, all in
/// stream order. Launches do not overlap, so this backend is for reachability rather than speed (docs/gloo.md). Pinned
/// memory is allocated when a launch needs it, and kept for later launches and communicators: the first launch of a
/// size waits for the allocation. Launches cannot be captured. Errors of create(): unsupported for devices without word
/// operations, and those of \p inner.
[[nodiscard]] std::shared_ptr<backend> make_host_staged_backend(std::shared_ptr<backend> inner);

} // namespace troupe
