/// What many single times come to: percentiles of each block, and how all of them are spread.
#pragma once

#include <troupe/program/bench/bench_report.hpp>

#include <cstddef>
#include <map>
#include <vector>

namespace troupe::program {

/// Counts by ranges that grow by the fourth root of two: four to an octave, so that a tail a hundred times as long as
/// the median is 27 lines.
class log_histogram {
public:
  /// \p microseconds may be anything above 0; less counts as a nanosecond.
  void add(double microseconds);
  /// Where range number \p index begins, and number \p index - 1 ends, in microseconds.
  [[nodiscard]] static double begin_of(int index) noexcept;
  /// How many, by number of range, without empty ranges.
  [[nodiscard]] const std::map<int, std::size_t>& counts() const noexcept { return counts_; }

private:
  std::map<int, std::size_t> counts_;
};

/// One way's times. p50 to p99.9 are medians over blocks of each block's, the largest is of all.
class latency_figures {
public:
  /// In microseconds.
  void add_block(const std::vector<double>& times);

  /// By block, in the order of \ref columns.
  static constexpr double columns[] = {0.5, 0.9, 0.99, 0.999};
  static constexpr const char* column_names[] = {"p50", "p90", "p99", "p99_9"};
  [[nodiscard]] const std::vector<double>& blocks(std::size_t column) const { return blocks_.at(column); }
  [[nodiscard]] double largest() const noexcept { return largest_; }
  [[nodiscard]] const log_histogram& spread() const noexcept { return spread_; }

private:
  std::vector<std::vector<double>> blocks_{std::size(columns)};
  double largest_ = 0;
  log_histogram spread_;
};

/// p50, p90, p99, p99_9 and max, and all but the last by block.
[[nodiscard]] json figures_report(const latency_figures& figures);
/// Every range that is not empty: from_us, to_us, count.
[[nodiscard]] json spread_report(const log_histogram& spread);

} // namespace troupe::program
