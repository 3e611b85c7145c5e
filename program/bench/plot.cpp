#include <troupe/program/bench/plot.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <sstream>

namespace troupe::program {

namespace {

constexpr std::size_t most_ticks = 10;

std::string number_label(double value) {
  constexpr std::array units{std::pair{1e9, "G"}, std::pair{1e6, "M"}, std::pair{1e3, "k"}};
  char text[32];
  for (const auto& [unit, name] : units)
    if (value >= unit * (unit > 1e3 ? 0.999 : 9.99)) { // 10k, but 1000
      std::snprintf(text, sizeof text, "%.4g%s", value / unit, name);
      return text;
    }
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string bytes_label(double value) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, "%.4g %s", value, units[unit]);
  return text;
}

/// Returns ticks at powers of two, so far apart that there are few.
std::vector<plot_tick> binary_ticks(plot_values values, double least, double most) {
  const int first = static_cast<int>(std::ceil(std::log2(least) - 1e-9));
  const int last = static_cast<int>(std::floor(std::log2(most) + 1e-9));
  const int step = 1 + (last - first) / static_cast<int>(most_ticks);
  std::vector<plot_tick> ticks;
  for (int i = first; i <= last; i += step) {
    const double at = std::exp2(i);
    ticks.push_back({at, values == plot_values::bytes ? bytes_label(at) : number_label(at)});
  }
  return ticks;
}

/// Returns ticks at decades and, if there are few decades, also at 2 and 5 times each.
std::vector<plot_tick> decimal_ticks(double least, double most) {
  const int first = static_cast<int>(std::floor(std::log10(least)));
  const int last = static_cast<int>(std::ceil(std::log10(most)));
  const int step = 1 + (last - first) / static_cast<int>(most_ticks);
  std::vector<double> within{1};
  if (std::log10(most / least) < 2.5) within = {1, 2, 5};
  std::vector<plot_tick> ticks;
  for (int i = first; i <= last; i += step)
    for (const double times : within) {
      const double at = times * std::pow(10.0, i);
      if (at >= least * (1 - 1e-9) && at <= most * (1 + 1e-9)) ticks.push_back({at, number_label(at)});
    }
  return ticks;
}

bool shows(const plot_axis& axis, double value) {
  return std::isfinite(value) && (axis.scale == plot_scale::linear || value > 0);
}

} // namespace

std::vector<plot_tick> log_ticks(plot_values values, double least, double most) {
  return values == plot_values::numbers ? decimal_ticks(least, most) : binary_ticks(values, least, most);
}

plot drawable(plot what) {
  for (plot_panel& panel : what.panels) {
    for (plot_series& series : panel.series)
      std::erase_if(series.points,
                    [&](const auto& one) { return !shows(panel.x, one.first) || !shows(panel.y, one.second); });
    std::erase_if(panel.series, [](const plot_series& one) { return one.points.empty(); });
  }
  std::erase_if(what.panels, [](const plot_panel& one) { return one.series.empty(); });
  return what;
}

std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  const auto letters = [](const std::string& part) {
    return static_cast<std::size_t>(
        std::ranges::count_if(part, [](char one) { return (static_cast<unsigned char>(one) & 0xC0U) != 0x80U; }));
  };
  std::vector<std::string> lines;
  std::istringstream words{text};
  for (std::string word; words >> word;)
    if (lines.empty() || letters(lines.back()) + 1 + letters(word) > width)
      lines.push_back(std::move(word));
    else
      lines.back() += " " + word;
  return lines;
}

} // namespace troupe::program
