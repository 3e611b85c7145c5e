/// Handles SIGINT and SIGTERM as a request to end soon and to report the results so far.
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>

namespace troupe::program {

/// While the object exists, the first SIGINT or SIGTERM is recorded; a second one ends the process as if it was not
/// caught. Destroying the object clears the signal. Only one object may exist at a time.
class interruption {
public:
  interruption();
  interruption(const interruption&) = delete;
  interruption& operator=(const interruption&) = delete;
  ~interruption();

  /// Returns the received signal, or 0 if there was none.
  [[nodiscard]] static int signal() noexcept;
  /// Returns the name of the received signal, "SIGINT" or "SIGTERM".
  [[nodiscard]] static const char* name() noexcept;
  /// Returns 128 plus the signal, as shells do, or \p otherwise if there was none.
  [[nodiscard]] static int exit_status(int otherwise) noexcept;
};

/// Counts the rounds of clients that need each other in every round. After a signal, all of them end with the same
/// round.
/// Threads: safe from any.
class common_rounds {
public:
  explicit common_rounds(std::size_t count) : end_{count} {}

  /// Returns whether the round with this number, from 0, is to be run.
  [[nodiscard]] bool begins(std::size_t round) {
    const std::lock_guard lock{mutex_};
    if (interruption::signal() != 0 && end_ > begun_) end_ = begun_;
    if (round >= end_) return false;
    begun_ = std::max(begun_, round + 1);
    return true;
  }

private:
  std::mutex mutex_;
  std::size_t end_;
  std::size_t begun_ = 0; ///< The rounds that any client has begun.
};

} // namespace troupe::program
