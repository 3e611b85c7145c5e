#include <troupe/program/bench/bench.hpp>
#include <troupe/program/bench/bench_processes.cpp>
#include <troupe/program/support/option_ranges.hpp>

#include <troupe/device/error.hpp>
#include <troupe/runtime/configuration/byte_size.hpp>

#include <CLI/CLI.hpp>

#include <string>

namespace troupe::program {

void bench_options::add_to(CLI::App& command, const std::string& counted, std::size_t most_iterations) {
  runtime.add_to(command);
  add_number(command, "-n,--iters", iterations, counted, std::size_t{1}, most_iterations);
  add_blocks_to(command);
  add_report_to(command);
}

void bench_options::add_blocks_to(CLI::App& command) {
  add_number(command, "--blocks", blocks, "number of blocks; medians over blocks are reported", 1, 1'000);
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

std::vector<std::size_t> sizes_between(std::size_t begin, std::size_t end, size_step step) {
  constexpr std::size_t most = 4096;
  if (begin < 8 || end < begin)
    throw exception{errc::invalid_argument, "the sizes run from " + std::to_string(begin) + " to " +
                                                std::to_string(end) +
                                                ": the first must be at least 8 and no more than the last"};
  if (step.bytes == 0 && step.factor < 2)
    throw exception{errc::invalid_argument,
                    "the factor " + std::to_string(step.factor) +
                        " does not increase the size: give a factor of at least 2, or a step in bytes"};
  std::vector<std::size_t> sizes{begin};
  for (std::size_t last = begin;; sizes.push_back(last)) {
    // Compared before it is computed, because the next size may overflow.
    if (step.bytes > 0 ? step.bytes > end - last : last > end / step.factor) return sizes;
    if (sizes.size() == most)
      throw exception{errc::invalid_argument, "steps of " + std::to_string(step.bytes) + " bytes up to " +
                                                  std::to_string(end) + " give more than " + std::to_string(most) +
                                                  " sizes: take larger steps, or a factor"};
    last = step.bytes > 0 ? last + step.bytes : last * step.factor;
  }
}

void add_bench(CLI::App& program, action& chosen) {
  CLI::App* bench =
      program.add_subcommand("bench", "measure performance, in the terms of nccl-tests")->require_subcommand(1);
  add_collective_benches(*bench, chosen);
  add_completion_bench(*bench, chosen);
  add_registered_bench(*bench, chosen);
  add_host_bench(*bench, chosen);
  add_fusion_bench(*bench, chosen);
  add_latency_bench(*bench, chosen);
  add_clients_bench(*bench, chosen);
  add_rate_bench(*bench, chosen);
  add_idle_bench(*bench, chosen);
  add_corun_bench(*bench, chosen);
  add_plan_bench(*bench, chosen);
  add_recovery_bench(*bench, chosen);
  add_processes_bench(*bench, chosen);
  add_process_member(*bench, chosen);
  add_process_rates_bench(*bench, chosen);
  add_suite_bench(*bench, chosen);
}

} // namespace troupe::program
