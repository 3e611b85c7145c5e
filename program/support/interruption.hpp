/// SIGINT and SIGTERM as a wish to end soon, with what is known so far.
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>

namespace troupe::program {

/// While it lives, the first SIGINT or SIGTERM is noted; a second one ends the process as if nothing had been caught.
/// One at a time.
class interruption {
public:
  interruption();
  interruption(const interruption&) = delete;
  interruption& operator=(const interruption&) = delete;
  ~interruption();

  /// The signal that came; 0: none.
  [[nodiscard]] static int signal() noexcept;
  /// "SIGINT" or "SIGTERM", of the signal that came.
  [[nodiscard]] static const char* name() noexcept;
  /// As a shell has it, 128 and the signal; \p otherwise where none came.
  [[nodiscard]] static int exit_status(int otherwise) noexcept;
};

/// Rounds of clients that need each other in every one: when a signal has come, all of them end with the same round.
/// Threads: safe from any.
class common_rounds {
public:
  explicit common_rounds(std::size_t count) : end_{count} {}

  /// Whether the round of that number, from 0, is to be begun.
  [[nodiscard]] bool begins(std::size_t round) {
    const std::lock_guard lock{guard_};
    if (interruption::signal() != 0 && end_ > begun_) end_ = begun_;
    if (round >= end_) return false;
    begun_ = std::max(begun_, round + 1);
    return true;
  }

private:
  std::mutex guard_;
  std::size_t end_;
  std::size_t begun_ = 0; ///< By any of them.
};

} // namespace troupe::program
