/// The clients of `troupe stress change`: at each rank, and a driver. They verify every result, and count what they see
/// where the process that started them reads it.
#pragma once

#include <troupe/program/support/runtime_options.hpp>

#include <troupe/device/time.hpp>
#include <troupe/runtime/configuration/configuration.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace troupe::program {

/// The options of the clients.
struct change_clients {
  runtime_options runtime{};
  std::size_t lanes = 2; ///< At each rank, each with a client of its own.
  std::uint64_t seed = 1;
  nanoseconds pace = std::chrono::milliseconds{1}; ///< A client's pause after each request.
  nanoseconds patience = std::chrono::seconds{60}; ///< The deadline of each request.
};

/// The most lanes that a rank's client may use.
inline constexpr std::size_t most_change_lanes = 16;

/// What the clients of one process have seen. Lives in a file that the process shares with the one that started it, and
/// which survives it. All zero at first.
struct change_counts {
  std::atomic<std::uint64_t> verified[most_change_lanes]; ///< Results, by lane.
  std::atomic<std::uint64_t> moved;    ///< Those of a later epoch than the one that their client had begun in.
  std::atomic<std::uint64_t> leaving;  ///< Refused because the process leaves, or the world ends.
  std::atomic<std::uint64_t> outgrown; ///< Refused because they were made for another number of ranks.
  std::atomic<std::uint64_t> ended;    ///< Ended with their epoch.
  std::atomic<std::uint64_t> refused;  ///< Failed for a reason that no change and no fault explains.
  std::atomic<std::uint64_t> lost;     ///< Not answered.
  std::atomic<std::uint64_t> wrong;
  std::atomic<std::uint64_t> doubled;   ///< Answered twice, or done twice.
  std::atomic<std::int64_t> longest_ns; ///< Of the requests that have succeeded; whoever reads it may reset it.
  std::atomic<bool> has_text;           ///< Set after `text`.
  std::atomic<bool> is_over;            ///< Whether the process has ended by itself.
  char text[512];                       ///< The first fault.

  /// Keeps \p what as the first fault, unless there is one.
  void note(const std::string& what);
  [[nodiscard]] std::uint64_t all_verified() const;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

/// Maps the counts of process \p pid in \p folder. Returns null if the process has not made them yet.
[[nodiscard]] std::shared_ptr<change_counts> find_change_counts(const std::string& folder, std::int64_t pid);

/// Runs the process of one rank until its world ends. Returns its exit status.
[[nodiscard]] int run_change_member(const change_clients& options, const std::string& folder);

/// Asks all ranks for sums of integers (agree), one after another, until \p is_over. \p settings: of a driver. The
/// driver is made anew when its world has lost the controller.
void run_change_driver(const change_clients& options, const configuration& settings, change_counts& seen,
                       const std::atomic<bool>& is_over);

} // namespace troupe::program
