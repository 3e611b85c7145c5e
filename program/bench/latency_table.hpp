/// Ways to have a small operation done, compared: the table, the histogram and the report that all of them share.
#pragma once

#include <troupe/program/bench/latency_figures.hpp>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace troupe::program {

/// Times of one block of one way, in microseconds.
struct latency_block {
  std::vector<double> each{};  ///< As its askers saw it.
  std::vector<double> spans{}; ///< Where every rank is asked by itself: from the first asking to the last reply.
};

class latency_table {
public:
  /// \p heading: of the first column.
  explicit latency_table(std::string heading) : heading_{std::move(heading)} {}

  /// Appends a way; returns its number. \p labels are its members in the report.
  std::size_t add_way(std::string name, json labels);
  /// What the ways are measured against.
  void add_raw_block(const std::vector<double>& each);
  /// \p raw_p50: of the same block; none without raw.
  void add_block(std::size_t way, const latency_block& measured, std::optional<double> raw_p50);

  void print(std::FILE* to) const;
  /// One line for each range of times, one column for each way, from the shortest to the longest time seen.
  void print_histogram(std::FILE* to) const;
  /// raw (where it was measured) and rows, each with its histogram where \p with_histogram.
  void add_to(json& report, bool with_histogram) const;

private:
  struct way {
    std::string name;
    json labels{};
    latency_figures times{};
    latency_figures spans{};
    std::vector<double> added{}; ///< To raw's median, by block.
  };

  [[nodiscard]] bool has_spans() const noexcept;
  [[nodiscard]] std::vector<const way*> all() const;

  std::string heading_;
  std::optional<way> raw_;
  std::vector<way> ways_;
};

} // namespace troupe::program
