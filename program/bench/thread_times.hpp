/// The CPU time of every thread of this process, by name: what troupe's threads cost.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

/// Who a thread works for, as its name tells.
enum class thread_group : std::uint8_t {
  launchers, ///< troupe/gpuN
  poller,    ///< troupe/poll
  workers,   ///< Of the actor system, caf.…: troupe's actors and client actors alike.
  clients,   ///< The program's first thread, and plain threads that ask (bench/…).
  raw,       ///< bench/rawN
  others,    ///< Of CUDA and NCCL, the mock's troupe/mock, and helpers.
};
inline constexpr thread_group all_thread_groups[] = {thread_group::launchers, thread_group::poller,
                                                     thread_group::workers,   thread_group::clients,
                                                     thread_group::raw,       thread_group::others};
[[nodiscard]] std::string_view to_string(thread_group group) noexcept;
/// \p first: whether it is the process' first thread.
[[nodiscard]] thread_group group_of(std::string_view name, bool first) noexcept;

/// One thread's share of a span of time.
struct thread_use {
  int id = 0;
  std::string name;
  thread_group group = thread_group::others;
  std::chrono::nanoseconds cpu{0};
};

/// What the threads had used at one moment. A thread's clock is read where the system allows, to the nanosecond; else
/// its line in /proc, to the tick (10 ms).
class thread_times {
public:
  [[nodiscard]] static thread_times now();

  /// What each thread has used from \p before until this; one that has come meanwhile, all of it; one that has gone,
  /// nothing.
  [[nodiscard]] std::vector<thread_use> since(const thread_times& before) const;
  [[nodiscard]] std::chrono::steady_clock::time_point taken_at() const noexcept { return taken_at_; }

private:
  std::map<int, thread_use> threads_; ///< By id.
  std::chrono::steady_clock::time_point taken_at_{};
};

/// Of all threads of \p group.
[[nodiscard]] std::chrono::nanoseconds sum_of(const std::vector<thread_use>& uses, thread_group group) noexcept;

} // namespace troupe::program
