/// The door to the CUDA part: how a program gets a driver for real GPUs without seeing a CUDA header.
#pragma once

#include <troupe/device/driver.hpp>

#include <memory>

namespace troupe {

/// The driver of this machine's GPUs. Creates no context: device::open() does.
/// Errors: missing (no driver, no GPU, or built without CUDA), too_old (the driver); the text names the remedy.
/// Threads: safe from any. libcuda is looked up, never linked: a machine without it can start the program.
[[nodiscard]] std::shared_ptr<driver> make_cuda_driver();

} // namespace troupe
