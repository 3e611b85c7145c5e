/// What has to be over before a process destroys its static objects, CUDA's among them.
#pragma once

#include <memory>

namespace troupe {

/// Something whose threads use devices.
class ends_with_process {
public:
  ends_with_process() noexcept;
  ends_with_process(const ends_with_process&) = delete;
  ends_with_process& operator=(const ends_with_process&) = delete;
  virtual ~ends_with_process() = default;

  /// Returns when none of its threads uses a device any more.
  virtual void end() noexcept = 0;

  /// Whether this process was forked from the one that made it: none of its threads is here, so it can neither be used
  /// nor ended, and is left to the operating system.
  [[nodiscard]] bool is_inherited() const noexcept;

private:
  int process_;
};

/// Ends \p one, unless it is gone by then or inherited, when main() has returned or somebody has called exit(), before
/// whatever was loaded or constructed until this call is unloaded or destroyed. To be called again after a library has
/// been loaded that \p one uses. Not for _exit(), quick_exit() and signals. Threads: any.
void end_with_process(const std::shared_ptr<ends_with_process>& one);

/// True when all these have ended: no device must be used from then on, and the operating system takes back what has
/// not been given back. Threads: any.
[[nodiscard]] bool process_is_ending() noexcept;

} // namespace troupe
