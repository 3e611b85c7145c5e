/// How far one rank has come: its last requests submitted, launched and finished. For reports on missing ranks and on
/// hangs.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/order/absence_report.hpp>
#include <troupe/collectives/pipeline/fault_report.hpp>
#include <troupe/collectives/pipeline/launch_observer.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

namespace troupe {

class flight_line;

/// An operation without its memory, in a few words that a hot path can write.
class operation_sketch {
public:
  static constexpr std::size_t word_count = 4;
  using words = std::array<std::uint64_t, word_count>;

  operation_sketch(const operation& what, request_origin from) noexcept;
  explicit operation_sketch(const words& packed) noexcept : words_{packed} {}

  [[nodiscard]] const words& packed() const noexcept { return words_; }
  /// Returns 1 if it needs all ranks, else 0.
  [[nodiscard]] std::uint64_t collectives() const noexcept;
  /// Returns "all_reduce of 1024 f32, sum", its lane and position. Of v-forms it has only the sum of counts, and of a
  /// group its size.
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

/// The progress of a pipeline. Each sketch has a writer of its own, and so a cache line of its own.
struct progress_record {
  alignas(64) latest_sketch submitted;
  alignas(64) latest_sketch launched;
  alignas(64) latest_sketch finished;
  latest_sketch running; ///< The last that was seen to run; written rarely, by the writer of `finished`.
  /// Where every request is recorded; null: not recorded. Set before the first request, and read by every thread
  /// afterwards.
  alignas(64) std::shared_ptr<flight_line> line;

  /// \p running_since: since when `running` runs, if it does.
  [[nodiscard]] pipeline_progress read(std::optional<time_point> running_since = {}) const;
};

} // namespace troupe
