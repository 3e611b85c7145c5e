/// How far one rank has come: the last request that it was given, launched and finished, for reports of who is missing
/// and of what hangs.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/order/absence_report.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

namespace troupe {

class flight_line;

/// Where a request stands in the order of its client.
struct request_origin {
  troupe::lane lane{};
  std::uint64_t position = 0; ///< Among the rank's requests in the lane, from 0.
  std::uint64_t client = 0;   ///< The asking actor's number, or another of a client; 0: nobody in particular.
  bool of_world = false;      ///< A part of a request to all ranks, which stands in no lane.
};

/// What a rank's requests have come to; nothing where there was none yet.
struct pipeline_progress {
  /// Operations that need all ranks, from the first of the epoch: by these ranks are compared, for of the others each
  /// rank has as many as it has.
  struct counts {
    std::uint64_t submitted = 0;
    std::uint64_t launched = 0;
    std::uint64_t finished = 0;
  };

  std::optional<operation_mark> submitted{};
  std::optional<operation_mark> launched{};
  std::optional<operation_mark> started{};  ///< The last that the device has begun, as far as somebody has looked.
  std::optional<operation_mark> finished{}; ///< With success.
  counts collectives{};
  std::optional<time_point> running_since{};   ///< Of `started`, where it has not finished.
  std::optional<time_point> launching_since{}; ///< Of a launch call that has not returned.
};

/// An operation without its memory, in few words: what a hot path can write down.
class operation_sketch {
public:
  static constexpr std::size_t word_count = 4;
  using words = std::array<std::uint64_t, word_count>;

  operation_sketch(const operation& what, request_origin from) noexcept;
  explicit operation_sketch(const words& packed) noexcept : words_{packed} {}

  [[nodiscard]] const words& packed() const noexcept { return words_; }
  /// 1 for one that needs all ranks, else 0.
  [[nodiscard]] std::uint64_t collectives() const noexcept;
  /// "all_reduce of 1024 f32, sum", its lane and place. Of the v-forms the sum of counts alone, of a group its size.
  [[nodiscard]] operation_mark unpack() const;

private:
  words words_{};
};

/// The last of several sketches, and how many collectives there were. Threads: set() by one at a time, and never waits;
/// get() by any.
class latest_sketch {
public:
  void set(const operation_sketch& one) noexcept { set(one, one.collectives()); }
  /// \p one is the last of several that come together, of which \p collectives need all ranks.
  void set(const operation_sketch& one, std::uint64_t collectives) noexcept;
  [[nodiscard]] std::optional<operation_mark> get() const {
    std::uint64_t collectives = 0;
    return get(collectives);
  }
  /// The same, and how many collectives there were up to it.
  [[nodiscard]] std::optional<operation_mark> get(std::uint64_t& collectives) const;

private:
  std::atomic<std::uint64_t> version_{0}; ///< Odd while words are being written; 0 before the first.
  std::array<std::atomic<std::uint64_t>, operation_sketch::word_count> words_{};
  std::atomic<std::uint64_t> collectives_{0};
};

/// A pipeline's, each on a cache line of its own, since each has a writer of its own.
struct progress_record {
  alignas(64) latest_sketch submitted;
  alignas(64) latest_sketch launched;
  alignas(64) latest_sketch finished;
  latest_sketch running; ///< What has been seen to run, by the same writer: seldom.
  /// Where every request is written down; none: nowhere. Set before the first, and read by every thread since.
  alignas(64) std::shared_ptr<flight_line> line;

  /// \p running_since: whether and since when `running` runs.
  [[nodiscard]] pipeline_progress read(std::optional<time_point> running_since = {}) const;
};

} // namespace troupe
