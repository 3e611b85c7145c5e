/// `troupe bench`.

#include <troupe/program/bench/bench_commands.hpp>
#include <troupe/program/bench/process_traffic.hpp>

#include <CLI/CLI.hpp>

namespace troupe::program {

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
