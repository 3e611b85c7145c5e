/// What `troupe top` shows of a process, as lines of text.
#pragma once

#include <troupe/program/top/metric_scrape.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace troupe::program {

struct top_screen {
  std::size_t columns = 80;
  std::size_t lines = 24;
  bool is_coloured = false; ///< With ANSI escapes; else plain text.
};

/// \p earlier_rates: requests per second of the scrapes before, the latest last; shown as a small curve.
/// No more lines than the screen has, none longer than it is wide; what does not fit is counted in its last line.
[[nodiscard]] std::vector<std::string> draw_top(const scrape_interval& seen, std::span<const double> earlier_rates,
                                                const std::string& from, const top_screen& screen);

/// The rate that the curve is of.
[[nodiscard]] double request_rate(const scrape_interval& seen);

// How figures are written, in a few characters: "12.3k", "1.20G", "340us". A figure that is not known is "-".
[[nodiscard]] std::string short_number(double value);
[[nodiscard]] std::string short_bytes(double value);
[[nodiscard]] std::string short_time(double seconds);

} // namespace troupe::program
