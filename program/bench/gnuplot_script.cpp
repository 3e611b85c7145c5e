#include <troupe/program/bench/gnuplot.hpp>

#include <troupe/device/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

namespace troupe::program {

namespace {

// In pixels. The rooms are the space around the panels.
constexpr double panel_width = 640, panel_height = 400, left_room = 105, right_room = 25, head_room = 90,
                 tick_room = 95, key_line = 20, small_print_line = 15, print_margin = 20;
constexpr std::size_t print_letters_each_panel = 110; ///< Characters of the small print in a panel's width.

/// Colours that colour-blind readers can tell apart (Okabe and Ito).
constexpr std::array colours{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8B5E3C"};
constexpr std::array greys{"#444444", "#888888", "#AAAAAA"};

/// Quotes \p text. In single quotes gnuplot takes every character literally, except the quote and ends of lines.
std::string gnuplot_text(const std::string& text) {
  std::string all = "'";
  for (const char one : text) {
    if (one == '\'') all += '\'';
    all += static_cast<unsigned char>(one) < ' ' ? ' ' : one;
  }
  return all + "'";
}

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

struct value_range {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();

  void take(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
};

class script_writer {
public:
  script_writer(const plot& what, const std::string& terminal) : plot_{drawable(what)} {
    if (plot_.panels.empty())
      throw exception{errc::invalid_argument, "there is nothing to draw: no figure of '" + what.title + "' is above 0"};
    std::size_t key_lines = 1;
    for (const plot_panel& one : plot_.panels) key_lines = std::max(key_lines, rows_of_key(one));
    for (const std::string& paragraph : plot_.small_print)
      for (std::string& line : wrapped(paragraph, print_letters_each_panel * plot_.panels.size()))
        small_print_.push_back(std::move(line));
    foot_ = tick_room + key_line * static_cast<double>(key_lines) + print_margin +
            small_print_line * static_cast<double>(small_print_.size());
    width_ = panel_width * static_cast<double>(plot_.panels.size());
    height_ = head_room + panel_height + foot_;
    say("set encoding utf8");
    const std::string size = number(width_) + "," + number(height_);
    say("set terminal " +
        (terminal.empty() ? "svg dynamic noenhanced background '#ffffff' font 'sans-serif,13'"
                          : terminal + " noenhanced") +
        " size " + size);
  }

  [[nodiscard]] std::string write() {
    write_data();
    say("set multiplot");
    say("set label 1 " + gnuplot_text(plot_.title) + " at screen 0.5," + up(height_ - 24) +
        " center font 'sans-serif,18'");
    for (std::size_t i = 0; i < small_print_.size(); ++i)
      say("set label " + std::to_string(i + 2) + " " + gnuplot_text(small_print_[i]) + " at screen " +
          across(left_room / 2) + "," + up(small_print_line * static_cast<double>(small_print_.size() - i) - 2) +
          " left font 'sans-serif,10' textcolor rgb '#555555'");
    for (std::size_t i = 0; i < plot_.panels.size(); ++i) {
      write_panel(i);
      say("unset label");
    }
    say("unset multiplot");
    return std::move(text_);
  }

private:
  /// Returns the number of columns of the legend, whose names are arranged side by side in as many lines as needed.
  [[nodiscard]] static std::size_t columns_of_key(const plot_panel& panel) {
    std::size_t longest = 1;
    for (const plot_series& one : panel.series) longest = std::max(longest, one.name.size());
    const auto fit = static_cast<std::size_t>(panel_width / (60 + 8.0 * static_cast<double>(longest)));
    return std::clamp<std::size_t>(fit, 1, panel.series.size());
  }
  [[nodiscard]] static std::size_t rows_of_key(const plot_panel& panel) {
    const std::size_t columns = columns_of_key(panel);
    return (panel.series.size() + columns - 1) / columns;
  }

  void say(const std::string& line) { text_ += line + "\n"; }
  /// Converts pixels from the lower left corner to the fraction of the picture that gnuplot expects.
  [[nodiscard]] std::string across(double pixels) const { return number(pixels / width_); }
  [[nodiscard]] std::string up(double pixels) const { return number(pixels / height_); }

  static std::string data_name(std::size_t panel, std::size_t series) {
    return "$panel" + std::to_string(panel) + "_series" + std::to_string(series);
  }

  void write_data() {
    for (std::size_t p = 0; p < plot_.panels.size(); ++p)
      for (std::size_t s = 0; s < plot_.panels[p].series.size(); ++s) {
        say(data_name(p, s) + " << end_of_data");
        for (const auto& [x, y] : plot_.panels[p].series[s].points) say(number(x) + " " + number(y));
        say("end_of_data");
      }
  }

  void write_axis(const char* name, const plot_axis& axis, value_range values, double room) {
    say(std::string{"set "} + name + "label " + gnuplot_text(axis.label));
    if (axis.scale == plot_scale::linear) {
      say(std::string{"unset logscale "} + name);
      say(std::string{"set "} + name + "tics autofreq");
      say(std::string{"set "} + name + "range [" + (values.least >= 0 ? "0" : "*") + ":*]");
      return;
    }
    const double least = values.least / room, most = values.most * room;
    say(std::string{"set logscale "} + name);
    say(std::string{"set "} + name + "range [" + number(least) + ":" + number(most) + "]");
    std::string ticks;
    for (const plot_tick& one : log_ticks(axis.values, least, most))
      ticks += (ticks.empty() ? "" : ", ") + gnuplot_text(one.label) + " " + number(one.at);
    say(std::string{"set "} + name + "tics (" + ticks + ")");
  }

  void write_panel(std::size_t index) {
    const plot_panel& panel = plot_.panels[index];
    const double left = panel_width * static_cast<double>(index);
    say("set lmargin at screen " + across(left + left_room));
    say("set rmargin at screen " + across(left + panel_width - right_room));
    say("set bmargin at screen " + up(foot_));
    say("set tmargin at screen " + up(foot_ + panel_height));
    say("set title " + gnuplot_text(panel.title) + " font 'sans-serif,14'");
    say("set grid xtics ytics linecolor rgb '#DDDDDD' linewidth 1");
    say("set border 3 linecolor rgb '#555555'");
    value_range x, y;
    for (const plot_series& series : panel.series)
      for (const auto& [at, value] : series.points) {
        x.take(at);
        y.take(value);
      }
    write_axis("x", panel.x, x, panel.x.values == plot_values::numbers ? 1.1 : 1.35);
    write_axis("y", panel.y, y, 1.4);
    say("set xtics nomirror rotate by 35 right");
    say("set ytics nomirror");
    say("set key at screen " + across(left + panel_width / 2) + "," + up(foot_ - tick_room + key_line / 2) +
        " center top horizontal noautotitle reverse Left samplen 2.5 maxcols " + std::to_string(columns_of_key(panel)));
    std::string curves;
    std::size_t colour = 0, grey = 0;
    for (std::size_t s = 0; s < panel.series.size(); ++s) {
      const plot_series& one = panel.series[s];
      const std::string look =
          one.reference
              ? "dashtype 2 pointtype 6 linecolor rgb '" + std::string{greys[grey++ % greys.size()]} + "'"
              : "dashtype 1 pointtype 7 linecolor rgb '" + std::string{colours[colour++ % colours.size()]} + "'";
      curves += (curves.empty() ? "plot " : ", ") + data_name(index, s) + " using 1:2 with linespoints linewidth 2 " +
                "pointsize 0.6 " + look + " title " + gnuplot_text(one.name);
    }
    say(curves);
  }

  plot plot_;
  std::vector<std::string> small_print_; ///< By line.
  double foot_ = 0;
  double width_ = 0;
  double height_ = 0;
  std::string text_;
};

} // namespace

std::string gnuplot_script(const plot& what, const std::string& terminal) {
  return script_writer{what, terminal}.write();
}

} // namespace troupe::program
