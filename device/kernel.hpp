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
/// failed. Threads: the launching thread creates it, for a captured launch at each launch of the graph; one thread of
/// the engine steps and destroys it. That thread runs all kernels of the driver. Memory that the host, or kernels of
/// other drivers and processes, access at the same time needs atomic accesses.
class mock_kernel {
public:
  mock_kernel() = default;
  mock_kernel(const mock_kernel&) = delete;
  mock_kernel& operator=(const mock_kernel&) = delete;
  virtual ~mock_kernel() = default;

  /// Runs until the kernel has to wait, or ends. Never blocks and never calls the driver. After waiting, it is called
  /// again when other work of its driver has made progress, when a kernel of another driver of this process has stored
  /// something or ended, and after mock_driver::wake(), which a host that stores must call. After advanced, it is
  /// called again soon, so do not return that without a store: the engine would never be idle. Errors: an exception
  /// becomes the asynchronous error of the device.
  virtual kernel_step step() = 0;
  /// Returns whether it waits for stores of other processes, which nothing announces. In threaded mode it is then also
  /// called at intervals of 50 µs to 1 ms.
  [[nodiscard]] virtual bool polls() const noexcept { return false; }
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
