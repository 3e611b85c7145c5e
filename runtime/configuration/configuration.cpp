#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/configuration/duration.hpp>
#include <troupe/runtime/configuration/gathered_settings.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <utility>

namespace troupe {

namespace {

using namespace std::chrono_literals;

constexpr std::array backend_names{std::pair{backend_choice::automatic, std::string_view{"auto"}},
                                   std::pair{backend_choice::mock, std::string_view{"mock"}},
                                   std::pair{backend_choice::nccl, std::string_view{"nccl"}},
                                   std::pair{backend_choice::gloo, std::string_view{"gloo"}}};
constexpr std::array profile_names{std::pair{latency_profile::latency, std::string_view{"latency"}},
                                   std::pair{latency_profile::balanced, std::string_view{"balanced"}},
                                   std::pair{latency_profile::frugal, std::string_view{"frugal"}}};
constexpr std::array across_names{std::pair{across_choice::same, std::string_view{"same"}},
                                  std::pair{across_choice::gloo, std::string_view{"gloo"}}};

template <class Names, class Value>
std::string_view name_in(const Names& names, Value value) noexcept {
  for (const auto& [known, name] : names)
    if (known == value) return name;
  return {};
}

template <class Names>
auto value_in(const Names& names, std::string_view what, std::string_view name) {
  std::string choices;
  for (const auto& [value, known] : names) {
    if (known == name) return value;
    choices += (choices.empty() ? "" : ", ") + std::string{known};
  }
  throw exception{errc::invalid_argument,
                  "unknown " + std::string{what} + " '" + std::string{name} + "': choose one of " + choices};
}

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw exception{errc::invalid_argument, otherwise};
}

/// Checks hierarchy.nodes against the number of ranks of the world. The number is not known here if it depends on the
/// number of GPUs.
void check_nodes(const configuration& settings) {
  if (settings.hierarchy_nodes.empty()) return;
  const bool spans_processes = settings.position && settings.position->world_size > 1;
  const bool is_pretended = settings.backend == backend_choice::mock || settings.backend == backend_choice::gloo;
  if (!spans_processes && settings.ranks == 0 && !is_pretended) return;
  const int ranks = spans_processes      ? settings.position->world_size
                    : settings.ranks > 0 ? settings.ranks
                                         : settings.mock_devices;
  auto left = static_cast<std::size_t>(ranks);
  bool fits = true;
  for (const std::size_t one : settings.hierarchy_nodes) {
    fits = fits && one > 0 && one <= left;
    left -= fits ? one : 0;
  }
  require(fits && left == 0, "hierarchy.nodes must distribute the world's " + std::to_string(ranks) +
                                 " ranks, at least one to each node: make its counts add up to that number");
}

} // namespace

std::string_view to_string(backend_choice choice) noexcept {
  return name_in(backend_names, choice);
}

std::string_view to_string(latency_profile profile) noexcept {
  return name_in(profile_names, profile);
}

std::string_view to_string(nvtx_choice choice) noexcept {
  switch (choice) {
    case nvtx_choice::automatic: return "auto";
    case nvtx_choice::on: return "on";
    case nvtx_choice::off: return "off";
  }
  return "";
}

nvtx_choice parse_nvtx_choice(std::string_view name) {
  for (const nvtx_choice one : {nvtx_choice::automatic, nvtx_choice::on, nvtx_choice::off})
    if (name == to_string(one)) return one;
  throw exception{errc::invalid_argument, "'" + std::string{name} + "' must be auto, on or off"};
}

std::string_view to_string(across_choice choice) noexcept {
  return name_in(across_names, choice);
}

backend_choice parse_backend_choice(std::string_view name) {
  return value_in(backend_names, "backend", name);
}

latency_profile parse_latency_profile(std::string_view name) {
  return value_in(profile_names, "latency profile", name);
}

across_choice parse_across_choice(std::string_view name) {
  return value_in(across_names, "backend between nodes", name);
}

configuration configuration::from_environment() {
  check_process_variables();
  configuration settings = gather_settings(process_variables()).settings();
  check(settings);
  return settings;
}

configuration configuration::load(const std::filesystem::path& path) {
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
  require(!to_string(settings.backend).empty(), "the backend is unknown: choose one of auto, mock, nccl, gloo");
  require(!to_string(settings.mock_results).empty(), "mock.results is unknown: choose one of computed, none");
  check_nodes(settings);
  require(!to_string(settings.hierarchy.mode).empty(), "hierarchy.mode is unknown: choose one of auto, always, never");
  require(!to_string(settings.hierarchy_across).empty(), "hierarchy.across is unknown: choose one of same, gloo");
  require(settings.hierarchy.scratch_bytes > 0,
          "hierarchy.scratch_bytes is 0: set hierarchy.mode to never to compose nothing");
  check(settings.nccl);
  check(settings.nccl_environment);
  check(settings.gloo);
  if (const auto& at = settings.position) {
    const position_names& names = names_for(at->launcher);
    const std::string size = std::string{names.world_size} + " is " + std::to_string(at->world_size);
    require(at->world_size >= 1, size + " and must be at least 1");
    require(at->rank >= 0 && at->rank < at->world_size, std::string{names.rank} + " is " + std::to_string(at->rank) +
                                                            " and must be less than " + std::string{names.world_size} +
                                                            ", which is " + std::to_string(at->world_size));
    require(at->local_rank >= 0,
            std::string{names.local_rank} + " is " + std::to_string(at->local_rank) + " and must be at least 0");
    require(at->world_size == 1 || settings.ranks <= 1,
            "ranks is " + std::to_string(settings.ranks) + " while " + size +
                ": a process of a larger world holds one rank; leave ranks at 0, or start this process alone");
  }
  require(!to_string(settings.fusion.mode).empty(), "fusion is unknown: choose one of off, plans, free");
  require(settings.fusion.max_operations > 0, "fusion_max_operations is 0: 1 launches each operation by itself");
  require(settings.fusion.max_bytes > 0, "fusion_max_bytes is 0: set fusion to off to launch each by itself");
  require(settings.fusion.max_operation_bytes > 0,
          "fusion_max_operation_bytes is 0: set fusion to off to launch each by itself");
  require(settings.host_staging.chunk_bytes > 0, "host_staging.chunk_bytes is 0: a chunk needs at least one byte");
  require(settings.host_staging.slots > 0, "host_staging.slots is 0: staging needs at least one chunk on the device");
  for (const setting& one : all_settings())
    require(one.fits(settings), std::string{one.name} + " is " + one.text(settings) + " and must be from " + one.range);
  check(settings.recovery, settings.deadlines, settings.limits);
  check(settings.metrics);
  require(std::ranges::find(log_levels, settings.log_level) != log_levels.end(),
          "unknown log level '" + settings.log_level + "': choose one of trace, debug, info, warn, error, off");
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

} // namespace troupe
