/// The seam between a GPU and the mock: everything else of the example is the same on both.
#pragma once

#include "kernels.hpp"

#include <troupe/device/stream.hpp>

namespace training {

/// Enqueues \p what in stream order: as a kernel, or on the mock as loops. Never waits.
/// Errors: missing (there are GPUs, but the example was built without nvcc), device_failed.
void enqueue(troupe::stream_ref where, const kernel& what);

} // namespace training
