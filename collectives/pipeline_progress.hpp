/// How far one rank has come: the last request that it was given, launched and finished, for reports of who is missing
/// and of what hangs.
#pragma once

#include <troupe/collectives/operation.hpp>
#include <troupe/collectives/sequencing/absence_report.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

namespace troupe {

/// Where a request stands in the order of its client.
struct request_origin {
  troupe::lane lane{};
  std::uint64_t position = 0; ///< Among the rank's requests in the lane, from 0.
};

/// What a rank's requests have come to; nothing where there was none yet.
struct pipeline_progress {
  std::optional<operation_mark> submitted{};
  std::optional<operation_mark> launched{};
  std::optional<operation_mark> finished{}; ///< With success.
};

/// An operation without its memory, in few words: what a hot path can write down.
class operation_sketch {
public:
  static constexpr std::size_t word_count = 4;
  using words = std::array<std::uint64_t, word_count>;

  operation_sketch(const operation& what, request_origin from) noexcept;
  explicit operation_sketch(const words& packed) noexcept : words_{packed} {}

  [[nodiscard]] const words& packed() const noexcept { return words_; }
  /// "all_reduce of 1024 f32, sum", its lane and place. Of the v-forms the sum of counts alone, of a group its size.
  [[nodiscard]] operation_mark unpack() const;

private:
  words words_{};
};

/// The last of several sketches. Threads: set() by one at a time, and never waits; get() by any.
class latest_sketch {
public:
  void set(const operation_sketch& one) noexcept;
  [[nodiscard]] std::optional<operation_mark> get() const;

private:
  std::atomic<std::uint64_t> version_{0}; ///< Odd while words are being written; 0 before the first.
  std::array<std::atomic<std::uint64_t>, operation_sketch::word_count> words_{};
};

/// A pipeline's three, each on a cache line of its own, since each has a writer of its own.
struct progress_record {
  alignas(64) latest_sketch submitted;
  alignas(64) latest_sketch launched;
  alignas(64) latest_sketch finished;

  [[nodiscard]] pipeline_progress read() const { return {submitted.get(), launched.get(), finished.get()}; }
};

} // namespace troupe
