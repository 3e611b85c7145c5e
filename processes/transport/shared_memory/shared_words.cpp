#include <troupe/device/threads/thread_scheduler.hpp>
#include <troupe/processes/transport/shared_memory/shared_words.hpp>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace troupe {

void sleep_on(const std::uint64_t& word, std::uint64_t expected, nanoseconds at_most) noexcept {
  if (at_most <= nanoseconds{0}) return;
  if (thread_scheduler* const simulated = thread_scheduler::current()) {
    thread_scheduler::thread_list nobody_wakes;
    if (std::atomic_ref{const_cast<std::uint64_t&>(word)}.load() == expected) // NOLINT: it is only read
      simulated->wait(nobody_wakes, later(simulated->now(), at_most));
    return;
  }
  const auto limit = std::min<nanoseconds>(at_most, std::chrono::seconds{1}).count();
  const timespec span{.tv_sec = static_cast<time_t>(limit / 1'000'000'000), .tv_nsec = limit % 1'000'000'000};
  // Not FUTEX_PRIVATE_FLAG: the word is shared with another process.
  ::syscall(SYS_futex, &word, FUTEX_WAIT, static_cast<std::uint32_t>(expected), &span, nullptr, 0);
}

void wake_at(const std::uint64_t& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

} // namespace troupe
