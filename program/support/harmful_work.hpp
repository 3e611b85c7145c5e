/// Work of a client's own that goes wrong on a device: a kernel that does not end for long, or one that poisons the
/// process.
#pragma once

#include <troupe/device/stream.hpp>
#include <troupe/runtime/world.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe::program {

/// CUDA errors that end a process's use of its devices.
enum class sticky_error : std::uint8_t {
  illegal_address,  ///< 700: a kernel writes where nothing is mapped.
  failed_assertion, ///< 710: an assert() in a kernel.
};

/// Of one device. Kernels are loaded when it is made: loading waits for what runs there.
class harmful_work {
public:
  harmful_work() = default;
  harmful_work(const harmful_work&) = delete;
  harmful_work& operator=(const harmful_work&) = delete;
  virtual ~harmful_work() = default;

  /// Enqueues work that keeps \p where for \p span, whatever is aborted meanwhile.
  virtual void spin(stream_ref where, nanoseconds span) = 0;
  /// Enqueues work that fails.
  virtual void poison(stream_ref where, sticky_error how) = 0;
};

/// That of each local rank's device: kernels on a GPU; on the mock, a wait for a word that a thread writes, and an
/// error injected. Errors: missing, where libcuda lacks a function.
class harmful_works {
public:
  explicit harmful_works(const world& of);
  /// \p place: of a local rank, in their order.
  [[nodiscard]] harmful_work& at(std::size_t place) const { return *all_[place]; }

private:
  std::vector<std::unique_ptr<harmful_work>> all_;
};

} // namespace troupe::program
