/// The subcommands of the program `troupe`. Each registers its options and what to run when it is chosen.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace troupe::program {

/// Set by the chosen subcommand; returns the exit status.
using action = std::function<int()>;

void add_demo(CLI::App& program, action& chosen);
void add_doctor(CLI::App& program, action& chosen);
void add_config(CLI::App& program, action& chosen);
void add_bench(CLI::App& program, action& chosen);
void add_certs(CLI::App& program, action& chosen);
void add_conform(CLI::App& program, action& chosen);
/// `troupe launch`, and the agent that it starts on other hosts. \p launched is what followed its "--".
void add_launch(CLI::App& program, action& chosen, std::vector<std::string> launched);
void add_controller(CLI::App& program, action& chosen);
void add_simulate(CLI::App& program, action& chosen);
void add_stress(CLI::App& program, action& chosen);
void add_tune(CLI::App& program, action& chosen);
void add_trace(CLI::App& program, action& chosen);
void add_top(CLI::App& program, action& chosen);

} // namespace troupe::program
