/// Kernels: code that runs on a device in stream order. A kernel is compiled for CUDA, and is a sequence of steps for
/// the mock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace troupe {

/// Result of a step of a mock_kernel.
enum class kernel_step : std::uint8_t {
  waiting,  ///< It waits for a store of another kernel or of the host, and has stored nothing in this step.
  advanced, ///< It has stored something that other kernels may wait for, and has not ended.
  ended,    ///< It has ended. Later work in its stream may run.
};

/// One run of a kernel on the mock. It is destroyed after it has ended, or when it is dropped because its device
/// failed. Threads: created by the thread that launches it. One thread of the engine steps and destroys it. That thread
/// runs all kernels of the driver, so memory that only they access needs no atomic accesses; memory that kernels of
/// other drivers and processes or the host access does.
class mock_kernel {
public:
  mock_kernel() = default;
  mock_kernel(const mock_kernel&) = delete;
  mock_kernel& operator=(const mock_kernel&) = delete;
  virtual ~mock_kernel() = default;

  /// Runs until the kernel has to wait, or ends. Never blocks and never calls the driver. After waiting it is called
  /// again when other work of the driver has made progress, and at intervals of 50 µs to 1 ms in threaded mode, because
  /// stores of the host and of other processes are not announced. After advanced it is called again soon, so do not
  /// return that without a store: the engine would never be idle.
  /// Errors: an exception becomes the asynchronous error of the device.
  virtual kernel_step step() = 0;
};

/// Code that a driver can launch. Its address must stay valid as long as graphs hold launches of it, so it is usually a
/// constant of the program.
struct kernel {
  std::string_view name; ///< For messages.
  /// For CUDA: the address of the `__global__` function, which takes one argument, a struct by value. Null if troupe is
  /// built without a CUDA compiler.
  const void* compiled = nullptr;
  /// For the mock: starts a run with a copy of \p arguments, the struct that the function for CUDA takes. Called for
  /// each launch, and for each replay of a captured one. Null if the mock cannot run it.
  std::unique_ptr<mock_kernel> (*start_mock)(const void* arguments) = nullptr;
};

/// One launch of a kernel.
struct kernel_launch {
  const kernel* what = nullptr;
  unsigned blocks = 1;
  unsigned threads = 1; ///< Threads per block.
  /// The argument of the kernel: a trivially copyable struct, aligned to at most 16 bytes. It is copied by the launch.
  const void* arguments = nullptr;
  std::size_t argument_bytes = 0;
};

} // namespace troupe
