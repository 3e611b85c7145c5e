/// Ends objects that use devices before the process destroys its static objects, including those of CUDA.
#pragma once

#include <troupe/device/process_mark.hpp>

#include <memory>

namespace troupe {

/// Base class of objects whose threads use devices.
class ends_with_process {
public:
  ends_with_process() noexcept = default;
  ends_with_process(const ends_with_process&) = delete;
  ends_with_process& operator=(const ends_with_process&) = delete;
  virtual ~ends_with_process() = default;

  /// Stops the use of devices. Returns when none of the object's threads uses a device any more.
  virtual void end() noexcept = 0;
  /// Called in place of end() if exit(\p status) was called on a thread for which end() would wait (is_own_thread()).
  /// The process ends immediately afterwards.
  virtual void leave(int /*status*/) noexcept {}

  /// Returns whether this process was forked from the process that created the object. None of the object's threads
  /// exists in this process. The object can therefore neither be used nor be ended here, and is left to the operating
  /// system.
  [[nodiscard]] bool is_inherited() const noexcept { return made_.is_inherited(); }

private:
  process_mark made_;
};

/// Registers \p one to be ended when main() has returned or exit() was called, unless it has been destroyed by then or
/// is inherited. It ends before the libraries that were loaded before this call are unloaded, and before the static
/// objects that were constructed before this call are destroyed. Call it again after loading a library that \p one
/// uses. It has no effect for _exit(), quick_exit() and signals. Threads: any.
///
/// If a thread calls exit() on which the end would wait for itself (is_own_thread()), nothing is ended: open files of
/// stdio are flushed, and the process ends at once with the given status, without the exit functions that were
/// registered before. (docs/design/0092-ends-on-any-thread.md)
void end_with_process(const std::shared_ptr<ends_with_process>& one);

/// Returns whether all registered objects have ended. No device may be used from then on. The operating system reclaims
/// resources that have not been released. Threads: any.
[[nodiscard]] bool process_is_ending() noexcept;

} // namespace troupe
