/// The parts that the benches share: their declarations, common options and sizes, and the list of those that
/// `troupe bench suite` runs.
#pragma once

#include <troupe/program/commands.hpp>
#include <troupe/program/support/runtime_options.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::program {

/// Adds one subcommand for each of bench_operations().
void add_collective_benches(CLI::App& bench, action& chosen);
void add_completion_bench(CLI::App& bench, action& chosen);
void add_registered_bench(CLI::App& bench, action& chosen);
void add_host_bench(CLI::App& bench, action& chosen);
void add_fusion_bench(CLI::App& bench, action& chosen);
void add_latency_bench(CLI::App& bench, action& chosen);
void add_clients_bench(CLI::App& bench, action& chosen);
void add_rate_bench(CLI::App& bench, action& chosen);
void add_idle_bench(CLI::App& bench, action& chosen);
void add_corun_bench(CLI::App& bench, action& chosen);
void add_plan_bench(CLI::App& bench, action& chosen);
void add_recovery_bench(CLI::App& bench, action& chosen);
void add_processes_bench(CLI::App& bench, action& chosen);
void add_process_rates_bench(CLI::App& bench, action& chosen);
void add_suite_bench(CLI::App& bench, action& chosen);

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

/// The step between two sizes: a factor or, if `bytes` is not 0, a fixed number of bytes.
struct size_step {
  std::size_t factor = 4;
  std::size_t bytes = 0;
};

/// Returns the sizes from \p begin to \p end in bytes. \p begin is included; \p end is, if a step meets it.
/// Errors: invalid_argument (begin below 8 or above end, a step that does not increase, more than 4,096 sizes).
[[nodiscard]] std::vector<std::size_t> sizes_between(std::size_t begin, std::size_t end, size_step step);

enum class suite_scale : std::uint8_t {
  full,  ///< For GPUs: sizes up to 1 GiB and each bench's default number of blocks. Takes minutes.
  quick, ///< Sizes up to 16 MiB, fewer blocks.
  tiny,  ///< Sizes up to 256 KiB, two blocks: a test that everything works. --quick selects it on the mock.
};

struct suite_bench {
  std::string name; ///< The bench: `troupe bench NAME`. Its files have this name too.
  std::string what; ///< One sentence for people.
  std::vector<std::string> arguments{};
  bool takes_settings = true; ///< If true, every setting is passed as an option; otherwise only --backend.
};

/// Returns the benches in the order in which they run. The first one is the one that finds out the devices soonest.
[[nodiscard]] std::vector<suite_bench> suite_benches(suite_scale scale);

} // namespace troupe::program
