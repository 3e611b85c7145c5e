#include <troupe/runtime/configuration.hpp>

#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <utility>

namespace troupe {

namespace {

using namespace std::chrono_literals;

constexpr std::array backend_names{std::pair{backend_choice::automatic, std::string_view{"auto"}},
                                   std::pair{backend_choice::mock, std::string_view{"mock"}},
                                   std::pair{backend_choice::nccl, std::string_view{"nccl"}}};
constexpr std::array profile_names{std::pair{latency_profile::latency, std::string_view{"latency"}},
                                   std::pair{latency_profile::balanced, std::string_view{"balanced"}},
                                   std::pair{latency_profile::frugal, std::string_view{"frugal"}}};

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
                  "'" + std::string{name} + "' is no " + std::string{what} + ": choose one of " + choices};
}

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::optional<std::string>{value} : std::nullopt;
}

std::optional<int> number(const char* name, int least) {
  const auto text = variable(name);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, problem] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (problem != std::errc{} || end != text->data() + text->size() || value < least)
    throw exception{errc::invalid_argument,
                    std::string{name} + " is '" + *text + "' and must be a whole number from " + std::to_string(least)};
  return value;
}

std::optional<process_position> position_from_environment() {
  const auto world_size = number("WORLD_SIZE", 1);
  const auto rank = number("RANK", 0);
  const auto local_rank = number("LOCAL_RANK", 0);
  if (!world_size && !rank && !local_rank) return std::nullopt;
  if (!world_size || !rank)
    throw exception{errc::invalid_argument, "RANK and WORLD_SIZE belong together, and only one of them (or LOCAL_RANK "
                                            "alone) is set: set both, or none"};
  return process_position{.rank = *rank, .world_size = *world_size, .local_rank = local_rank.value_or(*rank)};
}

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw exception{errc::invalid_argument, otherwise};
}

void require_positive(nanoseconds span, const char* name) {
  require(span > 0ns, std::string{name} + " is " + std::to_string(span.count()) + " ns and must be more than 0");
}

} // namespace

std::string_view to_string(backend_choice choice) noexcept {
  return name_in(backend_names, choice);
}

std::string_view to_string(latency_profile profile) noexcept {
  return name_in(profile_names, profile);
}

backend_choice parse_backend_choice(std::string_view name) {
  return value_in(backend_names, "backend", name);
}

latency_profile parse_latency_profile(std::string_view name) {
  return value_in(profile_names, "latency profile", name);
}

configuration configuration::from_environment() {
  configuration settings;
  if (const auto name = variable("TROUPE_BACKEND")) settings.backend = parse_backend_choice(*name);
  if (const auto name = variable("TROUPE_PROFILE")) settings.profile = parse_latency_profile(*name);
  if (const auto name = variable("TROUPE_STRATEGY")) settings.strategy = parse_completion_strategy(*name);
  if (const auto count = number("TROUPE_RANKS", 0)) settings.ranks = *count;
  if (const auto path = variable("TROUPE_NCCL_LIBRARY")) settings.nccl_library = *path;
  if (const auto level = variable("TROUPE_LOG")) settings.log_level = *level;
  settings.position = position_from_environment();
  check(settings);
  return settings;
}

void check(const configuration& settings) {
  require(!to_string(settings.backend).empty(), "the backend is none of auto, mock, nccl");
  require(settings.ranks >= 0,
          "ranks is " + std::to_string(settings.ranks) + " and must be 0 (one for each device) or more");
  require(settings.mock_devices > 0,
          "mock_devices is " + std::to_string(settings.mock_devices) + " and must be at least 1");
  require(settings.mock_memory_bytes > 0, "mock_memory_bytes must be more than 0");
  if (const auto& at = settings.position) {
    require(at->world_size >= 1, "WORLD_SIZE is " + std::to_string(at->world_size) + " and must be at least 1");
    require(at->rank >= 0 && at->rank < at->world_size, "RANK is " + std::to_string(at->rank) +
                                                            " and must be less than WORLD_SIZE, which is " +
                                                            std::to_string(at->world_size));
    require(at->local_rank >= 0, "LOCAL_RANK is " + std::to_string(at->local_rank) + " and must be at least 0");
    require(at->world_size == 1 || settings.ranks <= 1,
            "ranks is " + std::to_string(settings.ranks) + " while WORLD_SIZE is " + std::to_string(at->world_size) +
                ": a process of a larger world holds one rank; leave ranks at 0 or unset WORLD_SIZE");
  }
  require_positive(settings.deadlines.form, "deadlines.form");
  require_positive(settings.deadlines.operation, "deadlines.operation");
  require_positive(settings.deadlines.drain, "deadlines.drain");
  require_positive(settings.deadlines.release, "deadlines.release");
  require_positive(settings.deadlines.abort, "deadlines.abort");
  require_positive(settings.limits.launch, "limits.launch");
  require_positive(settings.limits.hang, "limits.hang");
  require_positive(settings.limits.check_interval, "limits.check_interval");
  require_positive(settings.limits.quiet, "limits.quiet");
  constexpr std::array levels{"trace", "debug", "info", "warn", "error", "off"};
  bool known = false;
  for (const char* level : levels) known = known || settings.log_level == level;
  require(known, "the log level '" + settings.log_level + "' is none of trace, debug, info, warn, error, off");
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
