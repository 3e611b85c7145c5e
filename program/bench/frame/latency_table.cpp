#include <troupe/program/bench/frame/latency_table.hpp>
#include <troupe/program/support/text_table.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

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

std::size_t latency_table::add_way(std::string name, json labels) {
  ways_.push_back({.name = std::move(name), .labels = std::move(labels)});
  return ways_.size() - 1;
}

void latency_table::add_raw_block(const std::vector<double>& each) {
  if (!raw_) raw_.emplace(way{.name = "raw"});
  raw_->times.add_block(each);
}

void latency_table::add_block(std::size_t which, const latency_block& measured, std::optional<double> raw_p50) {
  way& one = ways_.at(which);
  one.times.add_block(measured.each);
  if (!measured.spans.empty()) one.spans.add_block(measured.spans);
  if (raw_p50) one.added.push_back(one.times.blocks(0).back() - *raw_p50);
}

bool latency_table::has_spans() const noexcept {
  return std::ranges::any_of(ways_, [](const way& one) { return !one.spans.blocks(0).empty(); });
}

std::vector<const latency_table::way*> latency_table::all() const {
  std::vector<const way*> found;
  if (raw_) found.push_back(&*raw_);
  for (const way& one : ways_) found.push_back(&one);
  return found;
}

void latency_table::print(std::FILE* to) const {
  int width = static_cast<int>(heading_.size());
  for (const way& one : ways_) width = std::max(width, static_cast<int>(one.name.size()));
  std::vector<table_column> columns{{heading_, "", width + 2}, {"p50", "(us)", 9},    {"p90", "(us)", 9},
                                    {"p99", "(us)", 9},        {"p99.9", "(us)", 10}, {"max", "(us)", 11}};
  if (raw_) columns.push_back({"added p50", "(us)", 10});
  if (raw_) columns.push_back({"added p99", "(us)", 10});
  if (has_spans()) columns.push_back({"first ask to", "last reply", 13});
  const text_table table{to, std::move(columns)};
  table.print_heading();
  for (const way* one : all()) {
    std::vector<std::string> cells{one->name};
    for (std::size_t i = 0; i < std::size(latency_figures::columns); ++i)
      cells.push_back(fixed(median(one->times.blocks(i))));
    cells.push_back(fixed(one->times.largest()));
    if (raw_) {
      const bool is_raw = one == &*raw_;
      constexpr std::size_t p99 = 2;
      cells.push_back(is_raw ? "-" : fixed(median(one->added)));
      cells.push_back(is_raw ? "-" : fixed(median(one->times.blocks(p99)) - median(raw_->times.blocks(p99))));
    }
    if (has_spans()) cells.push_back(one->spans.blocks(0).empty() ? "-" : fixed(median(one->spans.blocks(0))));
    table.print_row(cells);
  }
}

void latency_table::print_histogram(std::FILE* to) const {
  std::set<int> seen;
  for (const way* one : all())
    for (const auto& [index, count] : one->times.spread().counts()) seen.insert(index);
  if (seen.empty()) return;
  std::vector<table_column> columns{{"from", "(us)", 9}, {"to", "(us)", 9}};
  for (const way* one : all()) columns.push_back({one->name, "", std::max(7, static_cast<int>(one->name.size()))});
  const text_table table{to, std::move(columns)};
  table.print_heading();
  for (int index = *seen.begin(); index <= *seen.rbegin(); ++index) {
    std::vector<std::string> cells{fixed(log_histogram::begin_of(index)), fixed(log_histogram::begin_of(index + 1))};
    for (const way* one : all()) {
      const auto& counts = one->times.spread().counts();
      const auto found = counts.find(index);
      cells.push_back(found == counts.end() ? "." : std::to_string(found->second));
    }
    table.print_row(cells);
  }
}

void latency_table::add_to(json& report, bool with_histogram) const {
  const auto of = [&](const way& one) {
    json made = figures_report(one.times);
    if (with_histogram) made["histogram"] = spread_report(one.times.spread());
    return made;
  };
  if (raw_) report["raw"] = of(*raw_);
  json& rows = report["rows"] = json::array();
  for (const way& one : ways_) {
    json row = one.labels;
    row["time"] = of(one);
    if (!one.spans.blocks(0).empty()) row["span"] = figures_report(one.spans);
    if (!one.added.empty()) row["added"] = {{"p50", median(one.added)}, {"blocks", one.added}};
    rows.push_back(std::move(row));
  }
}

} // namespace troupe::program
