/// Measures the CPU time of every thread of this process, grouped by thread name, and the heap of the process.
#pragma once

#include <troupe/device/enum_names.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

using troupe::to_string;

/// The purpose of a thread, derived from its name.
enum class thread_group : std::uint8_t {
  launchers, ///< troupe/gpuN
  poller,    ///< troupe/poll
  workers,   ///< Threads of the actor system (caf.…), which run troupe's actors and client actors.
  clients,   ///< The program's first thread, and plain client threads (bench/…).
  raw,       ///< bench/rawN
  others,    ///< Threads of CUDA and NCCL, the mock's troupe/mock, and the deadline pool.
};
inline constexpr auto all_thread_groups = enum_values<thread_group>;
/// Returns the group of the thread called \p name. \p first is true for the first thread of the process.
[[nodiscard]] thread_group group_of(std::string_view name, bool first) noexcept;

/// The CPU time of one thread within a span of time.
struct thread_use {
  int id = 0;
  std::string name;
  thread_group group = thread_group::others;
  std::chrono::nanoseconds cpu{0};
};

/// The CPU times of all threads at one moment, read from each thread's clock with a resolution of a nanosecond.
class thread_times {
public:
  [[nodiscard]] static thread_times now();

  /// Returns the CPU time that each thread used between \p before and this moment. A thread that started meanwhile
  /// counts in full; a thread that ended is not listed.
  [[nodiscard]] std::vector<thread_use> since(const thread_times& before) const;
  [[nodiscard]] std::chrono::steady_clock::time_point taken_at() const noexcept { return taken_at_; }

private:
  std::map<int, thread_use> threads_; ///< Keyed by thread id.
  std::chrono::steady_clock::time_point taken_at_{};
};

/// Returns the sum over all threads of \p group.
[[nodiscard]] std::chrono::nanoseconds sum_of(const std::vector<thread_use>& uses, thread_group group) noexcept;

/// Returns the bytes that this process's heap has handed out and that were not freed. A leak makes this number grow.
/// Unlike resident memory, it counts neither the memory that the allocator keeps for reuse nor the quarantine of an
/// address sanitizer.
std::size_t allocated_bytes();

} // namespace troupe::program
