/// Writes the outputs of a bench: the JSON report, whose format all benches share (docs/benchmarks.md shows an
/// example), and the plot that the Python program troupe-plot draws from it.
#pragma once

#include <troupe/program/support/statistics.hpp>

#include <troupe/device/device.hpp>

#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

using json = nlohmann::ordered_json;

/// The schema version. It is raised when a field changes its meaning or is removed; new fields do not raise it.
inline constexpr int bench_schema = 2;

/// Begins a report with the circumstances: schema, bench, troupe, caf, command, date, machine, heading.
[[nodiscard]] json begin_report(std::string_view bench, const std::vector<std::string>& heading);

/// Returns a line about the device for headings, e.g. "NVIDIA H200 0000:00:06.0".
[[nodiscard]] std::string device_line(const device& which);
[[nodiscard]] json device_report(const device& which);

/// Returns the medians over blocks, and the figures of the blocks.
[[nodiscard]] json figures_report(const block_figures& figures);

/// Returns the median over blocks, and the values of the blocks.
[[nodiscard]] json by_block(const std::vector<double>& values);

/// Prints each line after "# ".
void print_heading(std::FILE* to, const std::vector<std::string>& lines);

/// Returns the present local date and time, formatted as by strftime().
[[nodiscard]] std::string local_time(const char* format);

[[nodiscard]] inline double in_microseconds(std::chrono::nanoseconds span) noexcept {
  return std::chrono::duration<double, std::micro>(span).count();
}
[[nodiscard]] std::vector<double> in_microseconds(const std::vector<std::chrono::nanoseconds>& spans);

/// A file that is written completely or not at all.
class whole_file {
public:
  /// Checks that the file can be written, without creating it. \p remedy is the end of error texts: it states what to
  /// name instead. Errors: invalid_argument.
  explicit whole_file(const std::string& path, std::string remedy = "name a file in a folder that you may write to");

  /// Returns the resolved path: the target of a link.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Writes a temporary file beside the target and renames it, so that a reader never sees half of it.
  /// Errors: invalid_argument.
  void write(std::string_view text) const;

private:
  [[noreturn]] void refuse(const std::string& why) const;

  std::filesystem::path path_;
  std::string remedy_;
};

/// The destination of a bench's JSON report.
class json_file {
public:
  /// \p path is empty for no document, or "-" for standard output. Tests whether the file can be written.
  /// Errors: invalid_argument.
  explicit json_file(const std::string& path);

  [[nodiscard]] bool wanted() const noexcept { return standard_output_ || file_.has_value(); }
  /// Returns where tables are printed: standard error when the document goes to standard output.
  [[nodiscard]] std::FILE* text_output() const noexcept { return standard_output_ ? stderr : stdout; }
  /// Does nothing without a path. Errors: invalid_argument.
  void write(const nlohmann::ordered_json& document) const;

private:
  bool standard_output_ = false;
  std::optional<whole_file> file_;
};

/// The file that a bench writes its plot to.
class plot_file {
public:
  /// \p path is empty for no plot. If plots cannot be drawn here, prints a warning on standard error immediately; the
  /// bench goes on. Errors: invalid_argument for a file that cannot be written.
  explicit plot_file(const std::string& path);

  /// Draws \p report into the file. Does nothing without a path. Call it last, after tables and documents are written:
  /// if troupe-plot is missing or fails, the report is written beside the file, with .json appended to the name, so
  /// that it can be drawn elsewhere. Errors: unsupported.
  void draw(const json& report) const;

private:
  std::optional<whole_file> file_;
};

} // namespace troupe::program
