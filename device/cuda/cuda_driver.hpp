/// Creates the driver for real GPUs. Users of this header need no CUDA header.
#pragma once

#include <troupe/device/driver.hpp>

#include <memory>

namespace troupe {

/// Returns a driver for this machine's GPUs. Creates no context: device::open() does.
/// Errors: missing (no driver, no GPU, or built without CUDA), too_old (the driver); the text names the remedy.
/// Threads: may be called from any thread. libcuda is opened at run time and never linked, so the program also starts
/// on a machine without it.
[[nodiscard]] std::shared_ptr<driver> make_cuda_driver();

} // namespace troupe
