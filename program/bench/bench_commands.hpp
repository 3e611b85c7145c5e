/// The subcommands of `troupe bench`. Each function registers the options of one subcommand and what it runs.
#pragma once

#include <troupe/program/commands.hpp>

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

} // namespace troupe::program
