#include <troupe/device/enum_names.hpp>
#include <troupe/runtime/configuration/settings.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/recording/record_on_signal.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <type_traits>
#include <utility>

namespace troupe {

/// How the values of settings are parsed and printed. Each form has `name` (setting::form), parse() (errors:
/// invalid_argument) and print(). The forms of numbers also have range(), the range in words.
namespace setting_forms {

[[noreturn]] static void refuse_value(std::string_view text, const std::string& why) {
  throw exception{errc::invalid_argument, "'" + std::string{text} + "' " + why};
}

/// A value with a parser and a printer of its own.
template <class Value>
struct converted {
  std::string_view name;
  Value (*parse)(std::string_view text);
  std::string (*print)(const Value& value);
};

/// A value that to_string() prints, usually an enumerator.
template <class Value>
constexpr converted<Value> named(Value (*parse)(std::string_view)) {
  return {"NAME", parse, [](const Value& value) { return std::string{to_string(value)}; }};
}

struct number {
  std::uint64_t least, most;
  std::string_view name = "NUMBER";
  [[nodiscard]] std::string range() const { return std::to_string(least) + " to " + std::to_string(most); }
  [[nodiscard]] std::uint64_t parse(std::string_view text) const {
    const auto value = parse_whole_number(text);
    if (!value || *value < least || *value > most) refuse_value(text, "must be a whole number from " + range());
    return *value;
  }
  [[nodiscard]] static std::string print(auto value) { return std::to_string(value); }
};

/// A number with a unit, or "0" if \p or_zero.
template <class Value>
struct quantity {
  std::string_view name;
  Value least, most;
  Value (*read)(std::string_view text);
  std::string (*write)(Value value);
  bool or_zero = false;
  [[nodiscard]] std::string range() const { return write(least) + " to " + write(most) + (or_zero ? ", or 0" : ""); }
  [[nodiscard]] Value parse(std::string_view text) const {
    if (or_zero && text == "0") return Value{};
    const Value value = read(text);
    if (value < least || value > most) refuse_value(text, "must be from " + range());
    return value;
  }
  [[nodiscard]] std::string print(Value value) const { return or_zero && value == Value{} ? "0" : write(value); }
};

constexpr quantity<std::size_t> size(std::size_t least, std::size_t most) {
  return {"SIZE", least, most, parse_byte_size, format_byte_size};
}

constexpr bool or_zero = true;
constexpr quantity<nanoseconds> duration(nanoseconds least, nanoseconds most, bool also_zero = false) {
  return {"DURATION", least, most, parse_duration, format_duration, also_zero};
}

/// Values with a separator between them. Empty values at the end are not printed.
template <class Element>
struct list_of {
  std::string_view name;
  char separator = ',';
  Element element;
  [[nodiscard]] std::string range() const requires requires { element.range(); }
  { return element.range(); }
  [[nodiscard]] auto parse(std::string_view text) const {
    std::vector<decltype(element.parse(text))> all;
    while (!text.empty()) {
      const std::string_view one = text.substr(0, text.find(separator));
      text.remove_prefix(std::min(text.size(), one.size() + 1));
      all.push_back(element.parse(one));
    }
    return all;
  }
  [[nodiscard]] std::string print(const auto& all) const {
    std::string text;
    for (const auto& one : all) text += element.print(one) + separator;
    return text.substr(0, text.find_last_not_of(separator) + 1);
  }
};

constexpr converted<std::string> plain_text{"TEXT", [](std::string_view value) { return std::string{value}; },
                                            [](const std::string& value) { return value; }};
constexpr converted<std::string> metrics_place{"TEXT",
                                               [](std::string_view value) {
                                                 if (!value.empty()) static_cast<void>(parse_metrics_address(value));
                                                 return std::string{value};
                                               },
                                               plain_text.print};

/// A path. Empty: none.
constexpr converted<std::string> plain_path{"PATH",
                                            [](std::string_view value) {
                                              if (value.find('\0') != std::string_view::npos)
                                                refuse_value(value, "is not a path: it contains a null byte");
                                              return std::string{value};
                                            },
                                            plain_text.print};
constexpr converted<std::optional<std::string>> optional_path{
    "PATH",
    [](std::string_view value) { return value.empty() ? std::nullopt : std::optional{plain_path.parse(value)}; },
    [](const std::optional<std::string>& value) { return value.value_or(""); }};

/// A size, or `auto`.
constexpr converted<std::optional<std::size_t>> size_or_auto{
    "SIZE|auto",
    [](std::string_view value) {
      return value == "auto" ? std::nullopt : std::optional{size(0, std::size_t{16} << 20U).parse(value)};
    },
    [](const std::optional<std::size_t>& value) { return value ? format_byte_size(*value) : std::string{"auto"}; }};

constexpr converted<bool> yes_or_no{"yes|no",
                                    [](std::string_view value) {
                                      if (value != "yes" && value != "no") refuse_value(value, "must be yes or no");
                                      return value == "yes";
                                    },
                                    [](const bool& value) -> std::string { return value ? "yes" : "no"; }};
constexpr converted<int> signal_name{"NAME", parse_record_signal,
                                     [](const int& value) { return std::string{record_signal_name(value)}; }};

constexpr converted<std::string> level_name{
    "NAME", [](std::string_view value) { return std::string{log_levels.at(index_in(log_levels, "log level", value))}; },
    plain_text.print};
/// Reads assignments by NCCL's names. A part without '=' belongs to the value before it, because values of NCCL may
/// contain the separator: NCCL_ALGO=ring;allreduce:tree.
static nccl_values parse_assignments(std::string_view text) {
  nccl_values all;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(text.size(), one.size() + 1));
    const std::size_t equals = one.find('=');
    if (equals == std::string_view::npos && !all.empty())
      all.back().second += ';' + std::string{one};
    else if (equals == std::string_view::npos || equals == 0 || equals + 1 == one.size())
      refuse_value(one, "must be NAME=VALUE");
    else
      all.emplace_back(one.substr(0, equals), one.substr(equals + 1));
  }
  return all;
}

/// Assignments that \p Check accepts.
template <auto Check>
constexpr converted<nccl_values> assignments{"NAME=VALUE;NAME=VALUE...",
                                             [](std::string_view text) {
                                               nccl_values all = parse_assignments(text);
                                               Check(all);
                                               return all;
                                             },
                                             [](const nccl_values& all) {
                                               std::string text;
                                               for (const auto& [name, value] : all)
                                                 text += (text.empty() ? "" : ";") + name + "=" + value;
                                               return text;
                                             }};

// Limits of the ranges. They are far beyond useful values, but low enough that a typing error does not exhaust the
// machine.
constexpr std::uint64_t most_ranks = 1'024; ///< Limit in one process, because each rank has threads of its own.
constexpr std::uint64_t most_threads = 1'024;
constexpr std::uint64_t most_requests = 1'000'000'000;
constexpr std::size_t tebibyte = std::size_t{1} << 40U;
constexpr nanoseconds microsecond{1'000}, millisecond{1'000'000}, hour{3'600'000'000'000}, year = 365 * 24 * hour;

/// Returns the name of the member that \p Member points to, as Clang and GCC print it.
template <auto Member>
constexpr std::string_view member_name() {
  const std::string_view text{__PRETTY_FUNCTION__};
  const std::size_t from = text.find("Member = ");
  const std::string_view path = text.substr(from, text.find_first_of(";]", from) - from);
  return path.substr(path.rfind(':') + 1);
}

/// Builds the table.
class settings_table {
public:
  settings_table() { fill(); }
  [[nodiscard]] std::span<const setting> all() const noexcept { return all_; }

private:
  void fill();
  void begin_group(std::string_view group) { group_ = group; }

  /// Adds a setting. \p Path: the pointers to members that lead from a configuration to the setting's value. Its
  /// variable and option are derived from its name: a.b_c becomes TROUPE_A_B_C and --a-b-c.
  template <auto... Path, class Form>
  settings_table& add(std::string_view name, std::string_view description, Form form) {
    setting& made = all_.emplace_back(setting{name, group_, description, form.name});
    made.variable = "TROUPE_";
    made.option = "--";
    for (const char letter : name) {
      const auto code = static_cast<unsigned char>(letter);
      const bool is_letter = std::isalpha(code) != 0;
      made.variable += is_letter ? static_cast<char>(std::toupper(code)) : '_';
      made.option += is_letter ? letter : '-';
    }
    ((made.member += (made.member.empty() ? "" : ".") + std::string{member_name<Path>()}), ...);
    if constexpr (requires { form.range(); }) made.range = form.range();
    made.set = [form](configuration& settings, std::string_view text) {
      auto& value = (settings.*....*Path);
      value = static_cast<std::remove_reference_t<decltype(value)>>(form.parse(text));
    };
    made.text = [form](const configuration& settings) { return form.print((settings.*....*Path)); };
    return *this;
  }
  /// Adds a setting whose value is also checked by check() of its \p Owner, whose other members have their defaults.
  template <auto Owner, auto Member, class Form>
  settings_table& add_checked(std::string_view name, std::string_view description, Form form) {
    add<Owner, Member>(name, description, form);
    all_.back().set = [form](configuration& settings, std::string_view text) {
      std::remove_reference_t<decltype(settings.*Owner)> alone;
      alone.*Member = form.parse(text);
      check(alone);
      settings.*Owner.*Member = std::move(alone.*Member);
    };
    return *this;
  }
  /// Replaces the derived names of the last setting by shorter, established ones.
  void called(std::string variable, std::string option) {
    all_.back().variable = std::move(variable);
    all_.back().option = std::move(option);
  }

  std::string_view group_;
  std::vector<setting> all_;
};

void settings_table::fill() {
  using c = configuration;
  using d = world_deadlines;
  using l = track_limits;
  using h = staging_limits;
  using s = sequencer_limits;
  using f = fusion_limits;
  using p = pending_limits;
  using r = recovery_terms;
  using k = control_settings;
  using t = hierarchy_terms;
  using m = metrics_settings;
  begin_group("Runtime");
  add<&c::backend>("backend", "the backend that moves the data: auto, mock, nccl or gloo", named(parse_backend_choice));
  add<&c::ranks>("ranks", "ranks of a world in this process alone; 0: one for each device", number{0, most_ranks});
  add<&c::profile>("profile", "how long threads spin before parking: latency, balanced or frugal",
                   named(parse_latency_profile));
  add<&c::strategy>("strategy", "how completions are detected: auto, flag, event or host_fn",
                    named(parse_completion_strategy));
  add<&c::placement>("placement", "where launchers and poller run: near (their GPUs) or none",
                     named(parse_thread_placement));
  add<&c::ordering>("ordering", "who orders requests to single ranks: agreed (troupe) or caller",
                    named(parse_ordering));
  add<&c::nccl, &nccl_settings::library>(
      "nccl_library", "path of the NCCL library; empty: the one that the linker finds", optional_path)
      .called("TROUPE_NCCL_LIBRARY", "--nccl");
  add<&c::pool, &pool_settings::reserve_bytes>("pool_reserve_bytes", "memory reserved on each device at the start",
                                               size(0, tebibyte));
  add<&c::pool, &pool_settings::keep_bytes>(
      "pool_keep_bytes", "unused memory that the pool of each device keeps; the rest is returned to the device",
      size(0, tebibyte));
  add<&c::scheduler_threads>("scheduler_threads", "threads of the actor system; 0: an eighth of the cores, 2 to 4",
                             number{0, most_threads});
  add<&c::fusion, &f::mode>(
      "fusion", "which requests are launched together: off (none), plans (those of a captured plan) or free (all)",
      named(parse_fusion));
  add<&c::fusion, &f::max_operations>("fusion_max_operations", "most requests in one launch", number{1, 65'536});
  add<&c::fusion, &f::max_bytes>("fusion_max_bytes", "most bytes in one launch of several requests", size(1, tebibyte));
  add<&c::fusion, &f::max_operation_bytes>("fusion_max_operation_bytes",
                                           "an operation with more bytes is launched by itself", size(1, tebibyte));
  add<&c::limits, &limit_settings::one_shot_bytes>("one_shot_bytes",
                                                   "most bytes from one rank to another in a collective that is a "
                                                   "kernel of troupe's own (0: none; auto: where it is "
                                                   "faster than NCCL)",
                                                   size_or_auto);
  add<&c::host_staging, &h::chunk_bytes>("host_staging.chunk_bytes",
                                         "bytes of host memory in one launch; the same in all processes of a world",
                                         size(1, tebibyte));
  add<&c::host_staging, &h::slots>(
      "host_staging.slots", "chunks of host memory on a device at once, of inputs and of results", number{1, 1'024});
  add<&c::hierarchy, &t::mode>("hierarchy.mode",
                               "whether to compose operations in worlds over several nodes: auto, always or never",
                               named(parse_hierarchy_mode));
  add<&c::hierarchy, &t::min_bytes>(
      "hierarchy.min_bytes", "least size of an operation's longest buffer to compose it under auto", size(0, tebibyte));
  add<&c::hierarchy, &t::scratch_bytes>(
      "hierarchy.scratch_bytes",
      "memory on each device for results between steps; the same in all processes of a world", size(1, tebibyte));
  add<&c::metrics, &m::address>(
      "metrics.address", "HOST:PORT that serves metrics to Prometheus and troupe top; empty: none", metrics_place);
  add<&c::metrics, &m::allow_remote>(
      "metrics.allow_remote", "whether metrics.address may be beyond loopback, where it is unprotected: yes or no",
      yes_or_no);
  add<&c::log_level>("log_level", "trace, debug, info, warn, error or off", level_name).called("TROUPE_LOG", "--log");
  add<&c::hierarchy, &hierarchy_settings::nodes>(
      "hierarchy.nodes",
      "ranks on each node in order, for example 2,3; empty: from the controller, else all on one node",
      list_of<number>{"COUNT,COUNT...", ',', {1, 65'536}});
  add<&c::hierarchy, &hierarchy_settings::across>(
      "hierarchy.across", "backend of composed operations between nodes: same or gloo", named(parse_across_choice));
  begin_group("NCCL");
  add<&c::nccl, &nccl_settings::config>("nccl.config", "fields of ncclConfig_t, for example maxCTAs=8;CTAPolicy=2",
                                        assignments<check_config>);
  add<&c::nccl, &nccl_settings::environment>(
      "nccl.environment", "variables that NCCL reads, for example NCCL_ALGO=ring", assignments<check_environment>);
  begin_group("Gloo");
  add_checked<&c::gloo, &gloo_options::interface_address>(
      "gloo.interface_address", "numeric address where other ranks reach this process; unprotected beyond loopback",
      plain_text);
  add<&c::gloo, &gloo_options::memory>(
      "gloo.memory",
      "memory of buffers: host (mock devices) or device (GPUs, through pinned memory; mock devices without GPUs)",
      named(parse_gloo_memory));
  begin_group("Mock");
  add<&c::mock, &mock_device_settings::devices>("mock.devices", "number of mock devices", number{1, most_ranks});
  add<&c::mock, &mock_device_settings::memory_bytes>("mock.memory_bytes", "memory of each mock device",
                                                     size(1, tebibyte));
  add<&c::mock, &mock_device_settings::cpus>("mock.cpus", "CPUs near each mock device, for example 0-3;4-7",
                                             list_of<converted<cpu_set>>{"CPUS;CPUS...", ';', named(parse_cpu_set)});
  add<&c::mock, &mock_device_settings::without>("mock.without",
                                                "features that the mock lacks, for example fp8_reductions",
                                                list_of<converted<feature>>{"NAME,NAME...", ',', named(parse_feature)});
  add<&c::mock, &mock_device_settings::results>(
      "mock.results", "results of collectives: computed, or none to measure only the overhead around them",
      named(parse_mock_results));
  begin_group("Deadlines and limits");
  add<&c::deadlines, &d::form>("deadlines.form", "time to form a world, including other processes",
                               duration(millisecond, year));
  add<&c::deadlines, &d::operation>("deadlines.operation", "time to answer a request without its own deadline",
                                    duration(millisecond, year));
  add<&c::deadlines, &d::drain>("deadlines.drain", "time to finish requests in flight when a world stops",
                                duration(millisecond, year));
  add<&c::deadlines, &d::release>("deadlines.release", "time to release a stopped world's communicators",
                                  duration(millisecond, year));
  add<&c::deadlines, &d::abort>("deadlines.abort", "time to abort a failed world's communicators",
                                duration(millisecond, year));
  add<&c::limits, &limit_settings::sequencing, &s::lead>(
      "limits.lead", "most requests of one rank that wait for its peers; more are refused as busy",
      number{1, most_requests});
  add<&c::limits, &limit_settings::pending, &p::operations>(
      "limits.pending_operations",
      "most unanswered requests of a world beyond the first of each lane; more are refused as busy; 0: no limit",
      number{0, most_requests});
  add<&c::limits, &limit_settings::pending, &p::bytes>(
      "limits.pending_bytes", "most bytes that these requests name in all; 0: no limit", size(0, tebibyte));
  add<&c::limits, &limit_settings::sequencing, &s::straggling>(
      "limits.straggling", "time until a request that waits for peers is reported; 0: never",
      duration(millisecond, year, or_zero));
  add<&c::limits, &l::launch>("limits.launch", "time after which a launch call is stuck", duration(millisecond, year));
  add<&c::limits, &l::hang>("limits.hang", "time after which an operation on a device is hung",
                            duration(millisecond, year));
  add<&c::limits, &l::check_interval>("limits.check_interval", "time between checks of these limits",
                                      duration(10 * microsecond, hour));
  add<&c::limits, &l::quiet>("limits.quiet", "time without completions until a stream is queried for errors",
                             duration(10 * microsecond, hour));
  begin_group("Recovery");
  add<&c::recovery, &r::policy>(
      "recovery.policy",
      "after a fault: fail_fast (the world ends), keep_size (the ranks form again) or shrink (the survivors do)",
      named(parse_recovery_policy));
  add<&c::recovery, &r::smallest>("recovery.smallest", "smallest number of ranks to which a world shrinks",
                                  number{1, most_ranks});
  add<&c::recovery, &r::rebuilds>("recovery.rebuilds",
                                  "rebuilds of a world within recovery.window; the next fault ends the world",
                                  number{1, 1'000'000});
  add<&c::recovery, &r::window>(
      "recovery.window",
      "time in which rebuilds are counted; 0: derived from deadlines and limits, at least ten minutes",
      duration(millisecond, 10 * year, or_zero));
  add<&c::recovery, &r::backoff>("recovery.backoff",
                                 "longest pause before the second rebuild in the window; doubled before each later one",
                                 duration(microsecond, year, or_zero));
  add<&c::report_folder>("report.folder", "folder for fault reports, one file each; empty: reports go into the log",
                         optional_path);
  add<&c::recorder, &recorder_settings::requests>(
      "recorder.requests", "latest requests of each rank that the flight recorder keeps; 0: it only counts",
      number{0, 1'048'576});
  add<&c::recorder, &recorder_settings::signal>(
      "recorder.signal", "signal that writes the flight record into report.folder or the working folder: USR1 or USR2",
      signal_name);
  add<&c::nvtx>("nvtx", "NVTX ranges named like requests: auto (when a profiler listens), on or off",
                named(parse_nvtx_choice));
  add<&c::recovery, &r::first_rung>(
      "recovery.first_rung",
      "first step of a recovery: form_beside (failed communicators are aborted afterwards), abort_first, shrink or "
      "revoke",
      named(parse_first_rung));
  begin_group("Worlds over processes");
  add<&c::control, &k::address>("control.address",
                                "HOST:PORT of the controller of a world over processes, or of several with a store, "
                                "separated by commas; empty: no "
                                "controller",
                                plain_text)
      .called("TROUPE_CONTROL", "--control");
  add<&c::control, &k::orphaned>("control.orphaned", "action without a controller: leave (the world ends) or rejoin",
                                 named(parse_orphan_policy));
  add<&c::control, &k::planned_changes>(
      "control.planned_changes",
      "whether ranks join and leave without an end of the epoch, where that is possible: yes or no; the same in all "
      "processes",
      yes_or_no);
  add<&c::control, &k::ca>("control.ca", "the CA's certificate, for mutual TLS with the controller", plain_path);
  add<&c::control, &k::certificate>("control.certificate", "this process's own certificate", plain_path);
  add<&c::control, &k::key>("control.key", "this process's private key", plain_path);
  add<&c::control, &k::patience>("control.patience", "time until a process without a controller gives up",
                                 duration(millisecond, year));
}

} // namespace setting_forms

/// User variables that are not settings.
static constexpr std::array other_variables{"TROUPE_CONFIG", "TROUPE_JOIN_TOKEN", "TROUPE_WORLD_SIZE"};
/// Variables that `troupe launch` and troupe's tests set. They are never treated as misspelt.
static constexpr std::array inner_variables{"TROUPE_PROCESS",      "TROUPE_HOST",        "TROUPE_PLACE",
                                            "TROUPE_DEVICE",       "TROUPE_SPARE",       "TROUPE_ATTEMPT",
                                            "TROUPE_BENCH_REPORT", "TROUPE_REQUIRE_GPU", "TROUPE_PREFIX"};

std::span<const setting> all_settings() {
  static const setting_forms::settings_table table;
  return table.all();
}

const setting& find_setting(std::string_view name) {
  const auto all = all_settings();
  const auto found = std::ranges::find(all, name, &setting::name);
  if (found != all.end()) return *found;
  std::vector<std::string> names;
  for (const setting& one : all) names.emplace_back(one.name);
  throw exception{errc::invalid_argument, "unknown setting '" + std::string{name} + "'; the nearest is '" +
                                              nearest_name(name, names) + "' (troupe config lists all)"};
}

void check_variable_names(const std::vector<std::string>& names) {
  std::vector<std::string> known(other_variables.begin(), other_variables.end());
  // Maps the regular name of a setting's variable, for example TROUPE_LOG_LEVEL, to its actual name.
  std::map<std::string, std::string> meant;
  for (const setting& one : all_settings()) {
    known.push_back(one.variable);
    std::string regular = "TROUPE_";
    for (const char letter : one.name)
      regular += letter == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    meant.emplace(std::move(regular), one.variable);
    meant.emplace("TROUPE_" + one.variable, one.variable);
  }
  for (const std::string& name : names) {
    if (std::ranges::count(known, name) + std::ranges::count(inner_variables, name) > 0) continue;
    const auto other = meant.find(name);
    const std::string& nearest =
        other != meant.end()
            ? other->second
            : *std::ranges::min_element(known, {}, [&](const std::string& one) { return edit_distance(name, one); });
    constexpr std::size_t long_name = sizeof "TROUPE_12345678";
    // A short name that is two edits away may be the user's own.
    const std::size_t most = name.size() + 1 < long_name ? 1 : 2;
    if (other != meant.end() || edit_distance(name, nearest) <= most)
      throw exception{errc::invalid_argument, "the environment has " + name +
                                                  ", which troupe does not read; the nearest is '" + nearest +
                                                  "': set that, or unset " + name};
  }
}

void check_process_variables() {
  std::vector<std::string> names;
  for (char** one = ::environ; one != nullptr && *one != nullptr; ++one)
    if (const std::string_view entry{*one}; entry.starts_with("TROUPE_"))
      names.emplace_back(entry.substr(0, entry.find('=')));
  check_variable_names(names);
}

void with_origin(std::string_view origin, const std::function<void()>& action) {
  try {
    action();
  } catch (const exception& failure) {
    error why = failure.why();
    why.text = std::string{origin} + ": " + why.text;
    throw exception{std::move(why)};
  }
}

} // namespace troupe
