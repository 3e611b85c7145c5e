#include <troupe/program/bench/latency_figures.hpp>

#include <algorithm>
#include <cmath>

namespace troupe::program {

namespace {

constexpr double per_octave = 4;

} // namespace

void log_histogram::add(double microseconds) {
  constexpr double nanosecond = 1e-3;
  ++counts_[static_cast<int>(std::floor(std::log2(std::max(microseconds, nanosecond)) * per_octave))];
}

double log_histogram::begin_of(int index) noexcept {
  return std::exp2(index / per_octave);
}

void latency_figures::add_block(const std::vector<double>& times) {
  for (std::size_t i = 0; i < std::size(columns); ++i) blocks_[i].push_back(percentile(times, columns[i]));
  for (const double one : times) {
    largest_ = std::max(largest_, one);
    spread_.add(one);
  }
}

json figures_report(const latency_figures& figures) {
  json report;
  for (std::size_t i = 0; i < std::size(latency_figures::columns); ++i)
    report[latency_figures::column_names[i]] = median(figures.blocks(i));
  report["max"] = figures.largest();
  for (std::size_t i = 0; i < std::size(latency_figures::columns); ++i)
    report["blocks"][latency_figures::column_names[i]] = figures.blocks(i);
  return report;
}

json spread_report(const log_histogram& spread) {
  json ranges = json::array();
  for (const auto& [index, count] : spread.counts())
    ranges.push_back(
        {{"from_us", log_histogram::begin_of(index)}, {"to_us", log_histogram::begin_of(index + 1)}, {"count", count}});
  return ranges;
}

} // namespace troupe::program
