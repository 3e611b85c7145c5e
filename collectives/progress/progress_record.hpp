/// Records the progress of one rank: its last requests submitted, launched and finished. Used in reports on missing
/// ranks and on hangs.
#pragma once

#include <troupe/collectives/backend/launch_observer.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/progress/absence_report.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

namespace troupe {

class commit_record;
class flight_line;

/// An operation without its memory, packed into a few 64-bit words for the hot path.
class operation_sketch {
public:
  static constexpr std::size_t word_count = 4;
  using words = std::array<std::uint64_t, word_count>;

  operation_sketch(const operation& what, request_origin from) noexcept;
  explicit operation_sketch(const words& packed) noexcept : words_{packed} {}

  [[nodiscard]] const words& packed() const noexcept { return words_; }
  /// Returns 1 if it needs all ranks, else 0.
  [[nodiscard]] std::uint64_t collectives() const noexcept;
  /// Returns "all_reduce of 1024 f32, sum", its lane and position. For v-forms it states only the sum of the counts,
  /// for a group of several parts only their number.
  [[nodiscard]] operation_mark unpack() const;

private:
  words words_{};
};

/// The last of several sketches, and the number of collectives so far. Threads: set() by one at a time, and it never
/// waits; get() by any.
class latest_sketch {
public:
  void set(const operation_sketch& one) noexcept { set(one, one.collectives()); }
  /// \p one is the last of several operations that are set together; \p collectives of them need all ranks.
  void set(const operation_sketch& one, std::uint64_t collectives) noexcept;
  [[nodiscard]] std::optional<operation_mark> get() const {
    std::uint64_t collectives = 0;
    return get(collectives);
  }
  /// Also sets \p collectives to the number of collectives up to it.
  [[nodiscard]] std::optional<operation_mark> get(std::uint64_t& collectives) const;

private:
  std::atomic<std::uint64_t> version_{0}; ///< Odd while words are being written; 0 before the first write.
  std::array<std::atomic<std::uint64_t>, operation_sketch::word_count> words_{};
  std::atomic<std::uint64_t> collectives_{0};
};

/// The number of requests, of all that were released to one rank in one epoch, that have succeeded. A request that the
/// rank refused by itself counts, too: it changed nothing, and the other ranks continue. The count stops permanently at
/// the first request that failed otherwise. Threads: note() and set() by one at a time, note_early() by one at a time,
/// beside it, value() by any.
class success_count {
public:
  /// Records that the \p number-th released request, from 1, has succeeded.
  void note(std::uint64_t number) noexcept {
    std::uint64_t before = number - 1;
    // Sequentially consistent, as is note_early(): either this thread sees the flag, or that one sees the new value.
    if (value_.compare_exchange_strong(before, number) && has_early_.load()) count_early();
  }
  /// Does the same for a request that may be done before earlier ones, as an agree is: it counts when these have.
  /// \p number: larger than in the calls before.
  void note_early(std::uint64_t number) noexcept;
  void set(std::uint64_t count) noexcept { value_.store(count, std::memory_order_release); }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_.load(std::memory_order_acquire); }

private:
  void count_early() noexcept;

  std::atomic<std::uint64_t> value_{0};
  std::atomic<bool> has_early_{false}; ///< Whether early_ has elements.
  std::mutex mutex_;
  std::deque<std::uint64_t> early_; ///< Requests that are done before an earlier one, ascending.
};

/// The progress of a pipeline. Each sketch has its own writer, and therefore its own cache line.
struct progress_record {
  alignas(64) latest_sketch submitted;
  alignas(64) latest_sketch launched;
  alignas(64) latest_sketch finished;
  success_count successes; ///< Of the requests that were released to the rank; the writer is that of `finished`.
  std::shared_ptr<commit_record> commits; ///< Null: not recorded. Set before the first request.
  latest_sketch running;                  ///< The last one seen running; written rarely, by the writer of `finished`.
  /// Records every request; null: requests are not recorded. Set before the first request; afterwards all threads may
  /// read the pointer.
  alignas(64) std::shared_ptr<flight_line> line;

  /// Returns the progress. \p running_since is the start time of `running`, if it is still running.
  [[nodiscard]] pipeline_progress read(std::optional<time_point> running_since = {}) const;
};

} // namespace troupe
