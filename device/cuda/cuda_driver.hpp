/// Creates the driver for real GPUs. Users of this header need no CUDA header.
#pragma once

#include <troupe/device/driver.hpp>

#include <memory>
#include <optional>
#include <string>

namespace troupe {

/// Returns a driver for this machine's GPUs. Creates no context: device::open() does.
/// Errors: missing (no driver, no GPU, or built without CUDA), too_old (the driver); the text names the remedy.
/// Threads: may be called from any thread. libcuda is opened at run time and never linked, so the program also starts
/// on a machine without it.
[[nodiscard]] std::shared_ptr<driver> make_cuda_driver();

/// Returns whether NVLink connects two GPUs of this node, which this process need not be able to use. \p from, \p to:
/// their PCI addresses. Empty if NVML does not know one of them, as in a container that has only its own GPU, or is not
/// there. Threads: may be called from any thread.
[[nodiscard]] std::optional<bool> find_nvlink_between(const std::string& from, const std::string& to);

} // namespace troupe
