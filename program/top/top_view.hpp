/// Formats the screen of `troupe top` as lines of text.
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
  bool is_coloured = false; ///< True: with ANSI escapes. False: plain text.
};

/// Returns the lines of the screen. \p earlier_rates are the requests per second of earlier scrapes, the latest last;
/// they are shown as a small curve. There are at most as many lines as the screen has, none wider than the screen. The
/// last line counts what does not fit.
[[nodiscard]] std::vector<std::string> draw_top(const scrape_interval& seen, std::span<const double> earlier_rates,
                                                const std::string& from, const top_screen& screen);

/// Returns the rate that the curve shows.
[[nodiscard]] double request_rate(const scrape_interval& seen);

// Format figures in a few characters: "12.3k", "1.20G", "340us". An unknown figure is "-".
[[nodiscard]] std::string short_number(double value);
[[nodiscard]] std::string short_bytes(double value);
[[nodiscard]] std::string short_time(double seconds);

} // namespace troupe::program
