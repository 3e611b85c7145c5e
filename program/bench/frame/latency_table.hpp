/// Summarises measured latencies (percentiles of each block, one histogram of all), and prints the table that compares
/// several ways to send a small operation.
#pragma once

#include <troupe/program/bench/frame/report.hpp>

#include <cstddef>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe::program {

/// A histogram whose ranges grow by the fourth root of two. That makes four ranges per octave, and a tail that is a
/// hundred times as long as the median fits in 27 lines.
class log_histogram {
public:
  /// \p microseconds may be any value above 0; values below a nanosecond count as a nanosecond.
  void add(double microseconds);
  /// Returns where range number \p index begins and range number \p index - 1 ends, in microseconds.
  [[nodiscard]] static double begin_of(int index) noexcept;
  /// Returns the count of each range that is not empty, by range number.
  [[nodiscard]] const std::map<int, std::size_t>& counts() const noexcept { return counts_; }

private:
  std::map<int, std::size_t> counts_;
};

/// The times of one kind of client. p50 to p99.9 are medians over blocks; the maximum is taken over all blocks.
class latency_figures {
public:
  /// \p times are in microseconds.
  void add_block(const std::vector<double>& times);

  /// The quantiles that blocks() contains, in this order.
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

/// Returns p50, p90, p99, p99_9 and max; all except max also by block.
[[nodiscard]] json figures_report(const latency_figures& figures);
/// Returns every range that is not empty, with from_us, to_us and count.
[[nodiscard]] json spread_report(const log_histogram& spread);

/// The times of one way in one block, in microseconds.
struct latency_block {
  std::vector<double> each{};  ///< From request to reply, as the clients saw it.
  std::vector<double> spans{}; ///< With a client per rank: from the first request to the last reply.
};

class latency_table {
public:
  /// \p heading is the title of the first column.
  explicit latency_table(std::string heading) : heading_{std::move(heading)} {}

  /// Appends a way to send requests and returns its number. \p labels become members of its row in the report.
  std::size_t add_way(std::string name, json labels);
  /// Adds a block of the raw reference.
  void add_raw_block(const std::vector<double>& each);
  /// \p raw_p50 is the median of raw in the same block; it is empty if raw was not measured.
  void add_block(std::size_t which, const latency_block& measured, std::optional<double> raw_p50);

  void print(std::FILE* to) const;
  /// Prints one line per range of times and one column per way, from the shortest to the longest time seen.
  void print_histogram(std::FILE* to) const;
  /// Adds `raw`, if it was measured, and `rows` to \p report; each has its histogram if \p with_histogram.
  void add_to(json& report, bool with_histogram) const;

private:
  struct way {
    std::string name;
    json labels{};
    latency_figures times{};
    latency_figures spans{};
    std::vector<double> added{}; ///< The time added to raw's median, indexed by block.
  };

  [[nodiscard]] bool has_spans() const noexcept;
  [[nodiscard]] std::vector<const way*> all() const;

  std::string heading_;
  std::optional<way> raw_;
  std::vector<way> ways_;
};

} // namespace troupe::program
