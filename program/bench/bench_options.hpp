/// What nearly every bench is told: the runtime's settings, how many blocks, and where its report goes.
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

  /// \p counted: what -n counts, e.g. "samples of each figure in a block", \p most_iterations at most.
  void add_to(CLI::App& command, const std::string& counted, std::size_t most_iterations = 1'000'000);
  /// Those that a bench without iterations has.
  void add_blocks_to(CLI::App& command);
  void add_report_to(CLI::App& command);
  /// Of those with something to draw (bench_plots.hpp).
  void add_plot_to(CLI::App& command);
};

/// A size in bytes on the command line, as 8 or 4K. Errors: invalid_argument where it holds no float.
[[nodiscard]] std::size_t float_bytes(const std::string& option, const std::string& text);

} // namespace troupe::program
