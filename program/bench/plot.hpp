/// A drawing of measured series: panels side by side, each with two axes, a legend below it, and small print below all.
/// What is drawn is data here; gnuplot_script.hpp says it in gnuplot's words.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

enum class plot_scale : std::uint8_t { linear, logarithmic };

/// How an axis names its values.
enum class plot_values : std::uint8_t {
  numbers, ///< 0.5, 20, 300k.
  counts,  ///< 1, 2, 4, 8: powers of two.
  bytes,   ///< 8 B, 64 KiB, 1 GiB.
};

struct plot_axis {
  std::string label; ///< With the unit, as "time (µs)".
  plot_scale scale = plot_scale::logarithmic;
  plot_values values = plot_values::numbers;
};

struct plot_series {
  std::string name;
  std::vector<std::pair<double, double>> points{}; ///< x and y.
  bool reference = false;                          ///< What the others are to be compared with: dashed and grey.
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

/// Where an axis has a mark, and what is written there.
struct plot_tick {
  double at;
  std::string label;
};

/// Of a logarithmic axis from \p least to \p most, both above 0; ten or so at most.
[[nodiscard]] std::vector<plot_tick> log_ticks(plot_values values, double least, double most);

/// \p what without the points that its axes cannot show (0 and less on a logarithmic one, what is no number), without
/// series and panels that then have nothing.
[[nodiscard]] plot drawable(plot what);

/// \p text in lines of \p width characters (of UTF-8) at most, divided at blanks; a longer word has a line of its own.
[[nodiscard]] std::vector<std::string> wrapped(const std::string& text, std::size_t width);

} // namespace troupe::program
