#include <troupe/program/support/fault_settings.hpp>

#include <troupe/program/support/fault_traffic.hpp>

#include <troupe/runtime/runtime.hpp>

#include <chrono>
#include <string>
#include <utility>

namespace troupe::program {

using namespace std::chrono_literals;

configuration fault_settings(const gathered_settings& asked, std::shared_ptr<fault_injector> faults, bool hangs_soon) {
  const auto is_open = [&](std::string_view name) {
    return asked.origin(find_setting(name)).source == setting_source::standard;
  };
  configuration settings = asked.settings();
  if (is_open("recovery.policy"))
    settings.recovery.policy =
        settings.recovery.first_rung == recovery_rung::shrink ? recovery_policy::shrink : recovery_policy::keep_size;
  if (settings.recovery.policy == recovery_policy::fail_fast)
    throw exception{errc::invalid_argument,
                    "with recovery.policy = fail_fast no world recovers: choose another policy"};
  if (is_open("recovery.rebuilds")) {
    settings.recovery.rebuilds = 1'000'000;
    if (is_open("recovery.window")) settings.recovery.window = std::chrono::years{5}; // Allows that many failures.
  }
  if (is_open("recovery.backoff")) settings.recovery.backoff = nanoseconds{0};
  if (hangs_soon && is_open("limits.hang")) settings.limits.hang = 100ms;
  if (is_open("deadlines.form")) settings.deadlines.form = 3s;
  if (is_open("log_level")) settings.log_level = "error"; // Raised faults are expected.
  settings.faults = std::move(faults);
  check(settings);
  return settings;
}

void require_peers(const world& where) {
  if (where.size() < 2)
    throw exception{errc::invalid_argument, "a world of " + std::to_string(where.size()) +
                                                " rank has no communicator that could go wrong: raise --ranks"};
}

void load_kernels(const gathered_settings& asked) {
  constexpr nanoseconds patience = 60s;
  configuration settings = asked.settings();
  settings.recovery = {}; // It may be complete only with fault_settings().
  runtime rt{settings};
  world where = rt.form_world();
  fault_traffic traffic{where, {.patience = patience}};
  if (!traffic.await([](const seen_reply& one) { return one.code == errc::none; }, patience)) {
    const auto why = traffic.first_failure();
    throw why ? exception{*why} : exception{errc::deadline_exceeded, "the first operations were not answered"};
  }
  traffic.stop();
  where.stop();
}

} // namespace troupe::program
