/// A comparison of several ways to run a small operation: the common table, histogram and report.
#pragma once

#include <troupe/program/bench/latency_figures.hpp>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace troupe::program {

/// The times of one way in one block, in microseconds.
struct latency_block {
  std::vector<double> each{};  ///< From request to reply, as the clients saw it.
  std::vector<double> spans{}; ///< With a client per rank: from the first request to the last reply.
};

class latency_table {
public:
  /// \p heading is the title of the first column.
  explicit latency_table(std::string heading) : heading_{std::move(heading)} {}

  /// Appends a way and returns its number. \p labels become members of its row in the report.
  std::size_t add_way(std::string name, json labels);
  /// Adds a block of the raw reference.
  void add_raw_block(const std::vector<double>& each);
  /// \p raw_p50 is the median of raw in the same block; it is empty without raw.
  void add_block(std::size_t way, const latency_block& measured, std::optional<double> raw_p50);

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
    std::vector<double> added{}; ///< Time added to raw's median, by block.
  };

  [[nodiscard]] bool has_spans() const noexcept;
  [[nodiscard]] std::vector<const way*> all() const;

  std::string heading_;
  std::optional<way> raw_;
  std::vector<way> ways_;
};

} // namespace troupe::program
