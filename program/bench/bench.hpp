/// The framework of all benches: common options, interleaved blocks, the outputs of a run, and the list of benches. A
/// bench is one source file that returns a bench_entry.
#pragma once

#include <troupe/program/bench/frame/rig.hpp>
#include <troupe/program/commands.hpp>
#include <troupe/program/support/runtime_options.hpp>
#include <troupe/program/support/text_table.hpp>

#include <array>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

/// Returns the bytes of the floats that \p bytes hold.
[[nodiscard]] constexpr std::size_t float_bytes(std::size_t bytes) noexcept {
  return bytes / sizeof(float) * sizeof(float);
}

/// Refuses a bench in a world over processes, where \p waiting requests may wait for other ranks at once, if the
/// controller permits fewer. \p what: what they are, in the plural; \p option: what lowers their number. Errors:
/// invalid_argument.
void expect_lead(const configuration& settings, std::size_t waiting, const std::string& what,
                 const std::string& option);

/// The step between two sizes: a factor or, if `bytes` is not 0, a fixed number of bytes.
struct size_step {
  std::size_t factor = 4;
  std::size_t bytes = 0;
};

/// Returns the sizes from \p begin to \p end in bytes. \p begin is included; \p end is included if a step reaches it.
/// Errors: invalid_argument (begin below 8 or above end, a step that does not increase, more than 4,096 sizes).
[[nodiscard]] std::vector<std::size_t> sizes_between(std::size_t begin, std::size_t end, size_step step);

/// A bench: the subcommand `troupe bench NAME`.
struct bench_entry {
  std::string name;
  std::string what; ///< One-line description in the help text and on the page of a suite.
  /// Registers the options, and returns the function that measures.
  std::function<action(CLI::App& command)> add;
  bool is_hidden = false; ///< If true, the help text does not show it.
};

/// Returns what bench_entry::add needs: \p add_options registers the members of \p Options, and \p run measures with
/// them and returns the exit status.
template <class Options>
std::function<action(CLI::App& command)> measured_by(void (*add_options)(CLI::App& command, Options& options),
                                                     int (*run)(const Options& options)) {
  return [=](CLI::App& command) -> action {
    auto options = std::make_shared<Options>();
    add_options(command, *options);
    return [=] { return run(*options); };
  };
}

/// Returns every bench, in the order of the help text.
[[nodiscard]] std::vector<bench_entry> all_benches();

/// Returns one entry for each of bench_operations().
[[nodiscard]] std::vector<bench_entry> collective_benches();
[[nodiscard]] bench_entry latency_bench();
[[nodiscard]] bench_entry clients_bench();
[[nodiscard]] bench_entry rate_bench();
[[nodiscard]] bench_entry plan_bench();
[[nodiscard]] bench_entry registered_bench();
[[nodiscard]] bench_entry host_bench();
[[nodiscard]] bench_entry idle_bench();
[[nodiscard]] bench_entry recovery_bench();
[[nodiscard]] bench_entry driver_bench();
[[nodiscard]] bench_entry processes_bench();
/// Returns the hidden bench that runs in every process that processes_bench() starts.
[[nodiscard]] bench_entry process_member();

/// The outputs of one run of a bench: tables, the JSON report and the plot.
class bench_session {
public:
  /// Errors: invalid_argument, for a file that cannot be written.
  bench_session(std::string name, const bench_options& options);

  /// Returns where tables are printed.
  [[nodiscard]] std::FILE* out() const noexcept { return document_.text_output(); }
  /// Prints the heading and begins the report, whose figures are in \p unit unless it is empty. The heading describes
  /// the world and then the method.
  void begin(runtime& rt, const world& where, const std::vector<std::string>& method, json options,
             const std::string& unit = "us");
  /// Prints the heading and begins the report of a bench that has no world.
  void begin(const std::vector<std::string>& heading, json options, const std::string& unit = "us");
  [[nodiscard]] bool has_begun() const noexcept { return !report.is_null(); }
  /// Prints a table of the report's rows, and of each row that is added later.
  void open_table(std::vector<table_column> columns);
  void add_row(json row);
  /// Adds the number of wrong values to the report and prints it. \p wrong is empty if values were not checked.
  void note_wrong(std::optional<std::size_t> wrong);
  /// Writes the report and draws the plot. Returns the exit status: 1 if values were wrong.
  [[nodiscard]] int finish() const;

  json report{};

private:
  void print(const std::vector<std::string>& heading, json options, const std::string& unit);

  std::string name_;
  json_file document_;
  plot_file picture_;
  std::optional<text_table> table_;
  std::size_t wrong_ = 0;
};

/// Calls \p measure(contender, block) for each of \p contenders in each of \p blocks. The first contender of a block
/// rotates, so that drift within a block favours none.
template <class Measure>
void interleave(std::size_t blocks, std::size_t contenders, Measure measure) {
  for (std::size_t block = 0; block < blocks; ++block)
    for (std::size_t i = 0; i < contenders; ++i) measure((i + block) % contenders, block);
}

/// Takes samples of \p Count contenders, interleaved within blocks: \p measure(contender) returns one, and
/// \p began(block) is called before each block. Block 0 is a warm-up that has \p warm_ups samples of each.
template <std::size_t Count, class Measure, class Began>
std::array<block_figures, Count> sample_blocks(const bench_options& options, std::size_t warm_ups, Measure measure,
                                               Began began) {
  std::array<block_figures, Count> figures;
  for (std::size_t block = 0; block <= options.blocks; ++block) {
    began(block);
    std::array<std::vector<double>, Count> samples;
    for (std::size_t i = 0; i < (block == 0 ? warm_ups : options.iterations); ++i)
      for (std::size_t k = 0; k < Count; ++k) {
        const std::size_t what = (k + i + block) % Count;
        samples[what].push_back(measure(what));
      }
    if (block == 0) continue;
    for (std::size_t what = 0; what < Count; ++what) figures[what].add_block(samples[what]);
  }
  return figures;
}

/// Returns "NAME, block 2/5".
[[nodiscard]] std::string at_block(const std::string& what, std::size_t block, std::size_t blocks);

} // namespace troupe::program
