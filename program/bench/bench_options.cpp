#include <troupe/program/bench/bench_options.hpp>

#include <troupe/device/error.hpp>
#include <troupe/runtime/configuration/user_input.hpp>

#include <CLI/CLI.hpp>

namespace troupe::program {

void bench_options::add_to(CLI::App& command, const std::string& counted, std::size_t most_iterations) {
  runtime.add_to(command);
  command.add_option("-n,--iters", iterations, counted)
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, most_iterations));
  add_blocks_to(command);
  add_report_to(command);
}

void bench_options::add_blocks_to(CLI::App& command) {
  command.add_option("--blocks", blocks, "number of blocks; medians over blocks are reported")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000));
}

void bench_options::add_report_to(CLI::App& command) {
  command.add_option("-J,--output_file,--json", json_path,
                     "write all figures to this file; with -, to standard output, and tables to standard error");
}

void bench_options::add_plot_to(CLI::App& command) {
  command.add_option("--plot", plot_path, "plot the figures into this SVG file")->type_name("FILE.svg");
}

std::size_t float_bytes(const std::string& option, const std::string& text) {
  const std::size_t bytes = parse_byte_size(text) / sizeof(float) * sizeof(float);
  if (bytes == 0)
    throw exception{errc::invalid_argument, option + " " + text + " is less than one float: give at least 4"};
  return bytes;
}

} // namespace troupe::program
