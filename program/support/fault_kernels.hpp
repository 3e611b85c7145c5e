/// Runs client work that misbehaves on a device: a kernel that runs for a long time, or one whose error makes the
/// device unusable for the process.
#pragma once

#include <troupe/device/stream.hpp>
#include <troupe/runtime/world.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe::program {

/// CUDA errors after which a process cannot use its devices any more.
enum class sticky_error : std::uint8_t {
  illegal_address,  ///< 700: a kernel writes to an unmapped address.
  failed_assertion, ///< 710: a failed assert() in a kernel.
};

/// Misbehaving work for one device. The constructor loads the kernels, because loading waits for running kernels.
class fault_kernels {
public:
  fault_kernels() = default;
  fault_kernels(const fault_kernels&) = delete;
  fault_kernels& operator=(const fault_kernels&) = delete;
  virtual ~fault_kernels() = default;

  /// Enqueues work that occupies \p where for \p span, even if communicators are aborted meanwhile.
  virtual void spin(stream_ref where, nanoseconds span) = 0;
  /// Enqueues work that leaves no room for other kernels, for \p span or a few times as long.
  virtual void occupy(stream_ref where, nanoseconds span) = 0;
  /// Enqueues work that fails.
  virtual void poison(stream_ref where, sticky_error how) = 0;
};

/// Fault kernels for each local rank's device. On a GPU these are kernels. On the mock they are a wait for a word that
/// a thread writes, and an injected error. Errors: missing, if libcuda lacks a function.
class fault_kernels_of_world {
public:
  explicit fault_kernels_of_world(const world& of);
  /// \p place is the index of a local rank.
  [[nodiscard]] fault_kernels& at(std::size_t place) const { return *all_[place]; }

private:
  std::vector<std::unique_ptr<fault_kernels>> all_;
};

} // namespace troupe::program
