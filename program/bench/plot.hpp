/// A plot of measured series as data: panels side by side, each with two axes, a common legend below, and small print
/// at the bottom. gnuplot_script() turns it into gnuplot's language.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

enum class plot_scale : std::uint8_t { linear, logarithmic };

/// The notation of an axis's values.
enum class plot_values : std::uint8_t {
  numbers, ///< 0.5, 20, 300k.
  counts,  ///< 1, 2, 4, 8: powers of two.
  bytes,   ///< 8 B, 64 KiB, 1 GiB.
};

struct plot_axis {
  std::string label; ///< With the unit, e.g. "time (µs)".
  plot_scale scale = plot_scale::logarithmic;
  plot_values values = plot_values::numbers;
};

struct plot_series {
  std::string name;
  std::vector<std::pair<double, double>> points{}; ///< x and y.
  bool reference = false; ///< The series that the others are compared with; drawn dashed and grey.
};

struct plot_panel {
  std::string title;
  plot_axis x;
  plot_axis y;
  std::vector<plot_series> series{};
};

struct plot {
  std::string title;
  std::vector<std::string> small_print{}; ///< Paragraphs.
  std::vector<plot_panel> panels{};
};

/// The position of a mark on an axis, and its text.
struct plot_tick {
  double at;
  std::string label;
};

/// Returns the ticks of a logarithmic axis from \p least to \p most, both above 0. There are about ten at most.
[[nodiscard]] std::vector<plot_tick> log_ticks(plot_values values, double least, double most);

/// Returns \p what without the points that its axes cannot show (NaN, and values up to 0 on a logarithmic axis) and
/// without series and panels that are then empty.
[[nodiscard]] plot drawable(plot what);

/// Breaks \p text at blanks into lines of at most \p width characters (of UTF-8). A longer word gets its own line.
[[nodiscard]] std::vector<std::string> wrapped(const std::string& text, std::size_t width);

} // namespace troupe::program
