// Shared memory in which a process kills or stops itself before a chosen access. Forced into the files that access it
// (tests/CMakeLists.txt), in place of the real one.
#pragma once

#include <troupe/processes/transport/shared_memory/shared_words.hpp>

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace troupe {

/// Before which access this process is struck, once. Processes have one thread.
struct strike {
  int signal = 0; ///< 0: none.
  ring_step step{};
  std::uint64_t before = 0;                ///< This many accesses of that step come first.
  std::atomic<bool>* has_struck = nullptr; ///< Set just before.

  void count(ring_step next) {
    if (signal == 0 || next != step || before-- > 0) return;
    const int with = std::exchange(signal, 0);
    has_struck->store(true);
    ::kill(::getpid(), with);
  }
};
inline strike planned_strike;

class counted_words {
public:
  explicit counted_words(std::uint64_t* words) noexcept : real_{words} {}
  [[nodiscard]] std::uint64_t load(std::size_t at, std::memory_order order, ring_step step) const {
    planned_strike.count(step);
    return real_.load(at, order, step);
  }
  void store(std::size_t at, std::uint64_t value, std::memory_order order, ring_step step) const {
    planned_strike.count(step);
    real_.store(at, value, order, step);
  }
  void add(std::size_t at, std::uint64_t value, ring_step step) const {
    planned_strike.count(step);
    real_.add(at, value, step);
  }
  void fence(ring_step step) const {
    planned_strike.count(step);
    shared_words::fence(step);
  }
  void wake(std::size_t at, ring_step step) const {
    planned_strike.count(step);
    real_.wake(at, step);
  }
  void sleep(std::size_t at, std::uint64_t expected, nanoseconds at_most, ring_step step) const {
    planned_strike.count(step);
    real_.sleep(at, expected, at_most, step);
  }

private:
  shared_words real_;
};

} // namespace troupe

#define shared_words counted_words // NOLINT(cppcoreguidelines-macro-usage)
