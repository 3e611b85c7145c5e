/// `troupe ctl`: asks the controller of a running world for its processes, or for a planned change of its ranks.

#include <troupe/program/commands.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/text_table.hpp>

#include <troupe/actors/world/world_event.hpp>
#include <troupe/processes/world_driver.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/configuration/gathered_settings.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

struct ctl_command {
  std::string control{};
  rank_change asked{};
  nanoseconds limit{std::chrono::minutes{2}};
};

std::string text_of(const std::optional<int>& number) {
  return number ? std::to_string(*number) : "-";
}

void print(const world_event& now, const world_processes& all) {
  std::printf("epoch %s, %d ranks, %s%s%s\n", to_string(now.epoch).c_str(), now.world_size,
              std::string{to_string(now.phase)}.c_str(), now.reason ? ": " : "",
              now.reason ? describe_reason(now.reason).c_str() : "");
  std::size_t host_width = 8, name_width = 8;
  for (const world_process& one : all) {
    host_width = std::max(host_width, one.host.size());
    name_width = std::max(name_width, one.name.size());
  }
  const text_table table{stdout,
                         {{"rank", "", 6},
                          {"place", "", 6},
                          {"host", "", static_cast<int>(host_width)},
                          {"pid", "", 8},
                          {"name", "", static_cast<int>(name_width)},
                          {"state", "", 9}}};
  table.print_heading();
  for (const world_process& one : all) {
    const char* const state = one.is_away ? "away" : one.is_leaving ? "leaves" : one.place ? "rank" : "stands by";
    table.print_row({one.self ? to_string(*one.self) : "-", text_of(one.place), one.host, std::to_string(one.pid),
                     one.name, one.self || !one.place || one.is_leaving ? state : "joins"});
  }
}

int run_ctl(const ctl_command& command) {
  configuration settings = configuration::from_environment();
  if (!command.control.empty()) settings.control.address = command.control;
  if (settings.control.address.empty())
    throw exception{errc::invalid_argument,
                    "no controller is named: give --control HOST:PORT, or set TROUPE_CONTROL as for its processes"};
  settings.control.patience = command.limit;
  world_driver driver{settings};
  const auto until = std::chrono::steady_clock::now() + command.limit;
  // It is admitted as soon as it knows an epoch, or that there is none: until then requests are refused.
  for (;;) {
    auto [reply, future] = make_value_promise<world_processes>();
    driver.change(command.asked, std::move(reply));
    if (future.wait_until(until) != std::future_status::ready)
      throw exception{errc::deadline_exceeded,
                      "the controller at " + settings.control.address +
                          " has not answered in time: the change may still be made (troupe ctl status)"};
    try {
      const world_processes all = future.get();
      print(driver.status(), all);
      return 0;
    } catch (const exception& failure) {
      const world_event now = driver.status();
      if (now.phase == world_phase::stopped) throw exception{now.reason};
      const bool is_early = failure.why().code == errc::rebuilding && failure.why().effect == effect::rejected;
      if (!is_early || std::chrono::steady_clock::now() >= until) throw;
      driver.wait_ready(std::chrono::milliseconds{50});
    }
  }
}

} // namespace

void add_ctl(CLI::App& program, action& chosen) {
  auto command = std::make_shared<ctl_command>();
  CLI::App* const ctl = program.add_subcommand("ctl", "show the processes of a running world, or change its ranks");
  ctl->footer(
      "TROUPE_JOIN_TOKEN is the secret of the world. A change is refused, with the reason, if the world could not\n"
      "go on after it; the processes that stay lose no request (docs/processes.md).");
  ctl->require_subcommand(1);
  ctl->add_option("--control", command->control, "the controller's address; by default that of TROUPE_CONTROL")
      ->type_name("HOST:PORT");
  add_time(*ctl, "--timeout", command->limit, "time limit for the answer", "1ms", "525600min");
  const auto add = [&](const char* name, const char* what, rank_change_kind kind) {
    CLI::App* const made = ctl->add_subcommand(name, what);
    made->callback([command, kind, &chosen] {
      command->asked.kind = kind;
      chosen = [command] { return run_ctl(*command); };
    });
    return made;
  };
  const auto add_place = [&](CLI::App& to, const char* what) {
    return to.add_option("place", command->asked.place, what)->type_name("PLACE")->check(CLI::Range(0, 4'095));
  };
  const auto add_renumber = [&](CLI::App& to) {
    to.add_flag("--renumber", command->asked.renumbers, "allow that ranks that stay get other numbers");
  };
  add("status", "show the processes of the world", rank_change_kind::none);
  CLI::App* const leave = add("leave", "let one process leave, for maintenance", rank_change_kind::leave);
  add_place(*leave, "its place, as status shows it")->required();
  add_renumber(*leave);
  CLI::App* const drain = add("drain", "let all processes of a host leave, spares included", rank_change_kind::drain);
  drain->add_option("host", command->asked.host, "the host, as status shows it")->type_name("HOST")->required();
  add_renumber(*drain);
  add_place(
      *add("join", "ask the launcher for a process at a free place, and wait until it serves", rank_change_kind::join),
      "its place; by default the first that is free");
}

} // namespace troupe::program
