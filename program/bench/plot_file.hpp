/// The plot that a bench writes (option --plot). The Python program troupe-plot draws it from the bench's JSON report.
#pragma once

#include <troupe/program/bench/bench_report.hpp>
#include <troupe/program/support/whole_file.hpp>

#include <optional>
#include <string>

namespace troupe::program {

/// Returns why troupe-plot cannot draw here, with the remedy. Empty if it can.
[[nodiscard]] std::string why_no_plots();

/// Returns \p report as text. A host name may contain any bytes; those that are not UTF-8 are replaced.
[[nodiscard]] std::string report_text(const json& report);

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
