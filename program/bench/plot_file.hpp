/// Where a bench leaves its drawing: what --plot names.
#pragma once

#include <troupe/program/bench/bench_report.hpp>
#include <troupe/program/support/whole_file.hpp>

#include <optional>
#include <string>

namespace troupe::program {

class plot_file {
public:
  /// \p path may be empty for none. Says at once, on standard error, where gnuplot is missing; measuring goes on.
  /// Errors: invalid_argument, for a file that cannot be written.
  explicit plot_file(const std::string& path);

  /// Draws \p report (plot_of()) into the file; does nothing when none is wanted. To be called last, when tables and
  /// documents are written: where gnuplot is missing or fails, its script is left beside the file, with .gp behind the
  /// name, to be drawn elsewhere. Errors: missing, unsupported; invalid_argument, when there is nothing to draw.
  void draw(const json& report) const;

private:
  std::optional<whole_file> file_;
};

} // namespace troupe::program
