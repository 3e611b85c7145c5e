/// Tells an object in a forked process that it belongs to the parent.
#pragma once

#include <troupe/device/error.hpp>

#include <atomic>
#include <cstdint>

namespace troupe {

/// The process in which an object was made.
///
/// A fork has a copy of each object of its parent, and shares the parent's sockets, shared memory and devices with it,
/// but has none of its threads. What a fork did with a copy would mix with what the parent does, and a lock that
/// another thread held at the time of the fork is never released. So objects whose functions or destructors use any of
/// these have a mark, and do nothing in a fork. Threads: any. A check takes about a nanosecond.
class process_mark {
public:
  process_mark() noexcept;

  /// Returns whether this process is a fork, at any distance, of the one that made the object. Processes made by
  /// vfork() or a bare clone() are not recognised.
  [[nodiscard]] bool is_inherited() const noexcept { return made_in_ != forks_.load(std::memory_order_relaxed); }

private:
  static std::atomic<std::uint32_t> forks_; ///< The number of forks between the first process and this one.

  std::uint32_t made_in_;
};

/// Returns the error for a use of \p what, for example "this world", in a fork of the process that made it.
[[nodiscard]] error used_in_fork(const char* what);

} // namespace troupe
