/// The options that nearly every bench has: the runtime's settings, the number of blocks, and the report's path.
#pragma once

#include <troupe/program/support/runtime_options.hpp>

#include <cstddef>
#include <string>

namespace CLI {
class App;
}

namespace troupe::program {

struct bench_options {
  runtime_options runtime{};
  std::size_t blocks = 5;
  std::size_t iterations = 20;
  std::string json_path{};
  std::string plot_path{};

  bench_options() = default;
  bench_options(std::size_t usual_blocks, std::size_t usual_iterations)
    : blocks{usual_blocks}, iterations{usual_iterations} {}

  /// \p counted says what -n counts, e.g. "samples of each figure in a block". -n may be at most \p most_iterations.
  void add_to(CLI::App& command, const std::string& counted, std::size_t most_iterations = 1'000'000);
  /// Adds the options of a bench that has no iterations.
  void add_blocks_to(CLI::App& command);
  void add_report_to(CLI::App& command);
  /// Adds the option of a bench whose report can be plotted (program/report).
  void add_plot_to(CLI::App& command);
};

/// Parses a size in bytes from the command line, e.g. 8 or 4K. Errors: invalid_argument if the size does not hold a
/// float.
[[nodiscard]] std::size_t float_bytes(const std::string& option, const std::string& text);

} // namespace troupe::program
