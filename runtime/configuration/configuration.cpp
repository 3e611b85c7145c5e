#include <troupe/actors/world/recovery/recovery_budget.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/configuration/gathered_settings.hpp>
#include <troupe/runtime/configuration/user_input.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace troupe {

namespace {

using namespace std::chrono_literals;

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw exception{errc::invalid_argument, otherwise};
}

/// Checks hierarchy.nodes against the number of ranks of the world. The number is not known here if it depends on the
/// number of GPUs.
void check_nodes(const configuration& settings) {
  if (settings.hierarchy.nodes.empty()) return;
  const bool spans_processes = settings.position && settings.position->world_size > 1;
  const bool is_pretended = settings.backend == backend_choice::mock || settings.backend == backend_choice::gloo;
  if (!spans_processes && settings.ranks == 0 && !is_pretended) return;
  const int ranks = spans_processes      ? settings.position->world_size
                    : settings.ranks > 0 ? settings.ranks
                                         : settings.mock.devices;
  auto left = static_cast<std::size_t>(ranks);
  bool fits = true;
  for (const std::size_t one : settings.hierarchy.nodes) {
    fits = fits && one > 0 && one <= left;
    left -= fits ? one : 0;
  }
  require(fits && left == 0, "hierarchy.nodes must distribute the world's " + std::to_string(ranks) +
                                 " ranks, at least one to each node: make its counts add up to that number");
}

/// Names the variables of the launcher that set the position.
void check_position(const process_position& at, int own_ranks) {
  const position_names& names = names_for(at.launcher);
  const std::string size = std::string{names.world_size} + " is " + std::to_string(at.world_size);
  require(at.world_size >= 1, size + " and must be at least 1");
  require(at.rank >= 0 && at.rank < at.world_size, std::string{names.rank} + " is " + std::to_string(at.rank) +
                                                       " and must be less than " + std::string{names.world_size} +
                                                       ", which is " + std::to_string(at.world_size));
  require(at.local_rank >= 0,
          std::string{names.local_rank} + " is " + std::to_string(at.local_rank) + " and must be at least 0");
  require(at.world_size == 1 || own_ranks <= 1,
          "ranks is " + std::to_string(own_ranks) + " while " + size +
              ": a process of a larger world holds one rank; leave ranks at 0, or start this process alone");
}

} // namespace

configuration configuration::from_environment() {
  check_process_variables();
  configuration settings = gather_settings(process_variables()).settings();
  check(settings);
  return settings;
}

configuration configuration::load(const std::string& path) {
  check_process_variables();
  configuration settings = gather_settings(process_variables(), path).settings();
  check(settings);
  return settings;
}

void check(const recovery_terms& terms, const world_deadlines& deadlines, const track_limits& limits) {
  check(terms);
  if (terms.policy == recovery_policy::fail_fast || terms.window == 0ns) return; // as with_window() does
  const auto seconds = [](nanoseconds span) { return std::chrono::duration<double>(span).count(); };
  require(limits.hang < terms.window, "limits.hang is " + format_duration(limits.hang) + " and recovery.window " +
                                          format_duration(terms.window) +
                                          ": rebuilds would leave the window before the next hang is detected. Make "
                                          "the window longer or limits.hang shorter");
  require(limits.launch < terms.window, "limits.launch is " + format_duration(limits.launch) + " and recovery.window " +
                                            format_duration(terms.window) +
                                            ": rebuilds would leave the window before a stuck launch is detected. Make "
                                            "the window longer or limits.launch shorter");
  const nanoseconds one = deadlines.form + deadlines.abort;
  const double all = static_cast<double>(terms.rebuilds) * seconds(one) + seconds(total_backoff(terms));
  require(
      all < seconds(terms.window),
      std::to_string(terms.rebuilds) + " rebuilds (recovery.rebuilds) that each take deadlines.abort " +
          format_duration(deadlines.abort) + " and deadlines.form " + format_duration(deadlines.form) + ", with " +
          format_duration(total_backoff(terms)) + " of back-off, are " +
          std::to_string(static_cast<std::uint64_t>(all * 1000)) + "ms, and recovery.window is " +
          format_duration(terms.window) +
          ": the budget would never be used up. Make the window longer, the deadlines shorter or the rebuilds fewer");
}

void check(const configuration& settings) {
  check_config(settings.nccl.config);
  check_environment(settings.nccl.environment);
  check(settings.gloo);
  check(settings.metrics);
  if (settings.position) check_position(*settings.position, settings.ranks);
  configuration again;
  for (const setting& one : all_settings()) // settings other than numbers and names may have any value
    if (!one.range.empty() || one.form == "NAME") with_origin(one.name, [&] { one.set(again, one.text(settings)); });
  check_nodes(settings);
  check(settings.recovery, settings.deadlines, settings.limits);
}

chosen_wait choose_wait(latency_profile profile, std::size_t spinners, std::size_t cores) noexcept {
  const latency_profile used = spinners + 1 > cores ? latency_profile::frugal : profile;
  switch (used) {
    case latency_profile::latency: return {{.spin = nanoseconds::max(), .nap = 0ns}, used};
    case latency_profile::balanced: return {{.spin = 50ms, .nap = 20us}, used};
    case latency_profile::frugal: break;
  }
  return {{.spin = 0ns, .nap = 50us}, latency_profile::frugal};
}

void check(const gloo_options& options) {
  const std::string& numbers = options.interface_address;
  in_addr v4{};
  in6_addr v6{};
  const bool is_v4 = ::inet_pton(AF_INET, numbers.c_str(), &v4) == 1;
  if (!is_v4 && ::inet_pton(AF_INET6, numbers.c_str(), &v6) != 1)
    throw exception{errc::invalid_argument,
                    "'" + numbers + "' is not a numeric IPv4 or IPv6 address: write one, for example 127.0.0.1"};
  if (is_v4 ? v4.s_addr == htonl(INADDR_ANY) : std::memcmp(&v6, &in6addr_any, sizeof in6addr_any) == 0)
    throw exception{errc::invalid_argument, "'" + numbers +
                                                "' stands for all interfaces, and no peer can connect to "
                                                "it: name the address of one"};
}

} // namespace troupe
