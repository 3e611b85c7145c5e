/// The file that a bench writes its plot to (option --plot).
#pragma once

#include <troupe/program/bench/bench_report.hpp>
#include <troupe/program/support/whole_file.hpp>

#include <optional>
#include <string>

namespace troupe::program {

class plot_file {
public:
  /// \p path is empty for no plot. If gnuplot is missing, prints a warning on standard error immediately; the bench
  /// goes on. Errors: invalid_argument for a file that cannot be written.
  explicit plot_file(const std::string& path);

  /// Draws \p report (plot_of()) into the file. Does nothing without a path. Call it last, after tables and documents
  /// are written: if gnuplot is missing or fails, its script is written beside the file, with .gp appended to the name,
  /// so that it can be drawn elsewhere. Errors: missing, unsupported; invalid_argument when there is nothing to draw.
  void draw(const json& report) const;

private:
  std::optional<whole_file> file_;
};

} // namespace troupe::program
