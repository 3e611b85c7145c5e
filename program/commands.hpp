/// The subcommands of the program `troupe`. Each function registers the options of one subcommand and what it runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace troupe {
struct controller_options;
}

namespace troupe::program {

/// The function of the chosen subcommand; returns the exit status.
using action = std::function<int()>;

void add_demo(CLI::App& program, action& chosen);
void add_doctor(CLI::App& program, action& chosen);
void add_config(CLI::App& program, action& chosen);
void add_ctl(CLI::App& program, action& chosen);
void add_bench(CLI::App& program, action& chosen);
void add_certs(CLI::App& program, action& chosen);
void add_conform(CLI::App& program, action& chosen);
/// Adds `troupe launch`. \p launched are the words after its "--".
void add_launch(CLI::App& program, action& chosen, std::vector<std::string> launched);
void add_controller(CLI::App& program, action& chosen);
/// Adds the options that `troupe launch` and `troupe controller` have for their controller.
void add_controller_options(CLI::App& command, controller_options& options);
void add_order_service(CLI::App& program, action& chosen);
void add_simulate(CLI::App& program, action& chosen);
void add_stress(CLI::App& program, action& chosen);

} // namespace troupe::program
