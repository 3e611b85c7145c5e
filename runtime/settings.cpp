#include <troupe/runtime/byte_size.hpp>
#include <troupe/runtime/duration.hpp>
#include <troupe/runtime/settings.hpp>
#include <troupe/runtime/whole_number.hpp>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace troupe {

namespace {

// How a value is written. `form` is what --help calls it.

template <auto Parse>
struct named {
  static constexpr std::string_view form = "NAME";
  static auto parse(std::string_view text) { return Parse(text); }
  static std::string print(auto value) { return std::string{to_string(value)}; }
};

template <class Number, std::uint64_t Least>
struct number {
  static constexpr std::string_view form = "NUMBER";
  static Number parse(std::string_view text) {
    const auto value = parse_whole_number(text);
    if (!value || *value < Least || *value > static_cast<std::uint64_t>(std::numeric_limits<Number>::max()))
      throw exception{errc::invalid_argument,
                      "'" + std::string{text} + "' must be a whole number from " + std::to_string(Least)};
    return static_cast<Number>(*value);
  }
  static std::string print(Number value) { return std::to_string(value); }
};

template <std::size_t Least>
struct byte_size {
  static constexpr std::string_view form = "SIZE";
  static std::size_t parse(std::string_view text) {
    const std::size_t value = parse_byte_size(text);
    if (value < Least)
      throw exception{errc::invalid_argument,
                      "'" + std::string{text} + "' must be at least " + format_byte_size(Least)};
    return value;
  }
  static std::string print(std::size_t value) { return format_byte_size(value); }
};

struct duration {
  static constexpr std::string_view form = "DURATION";
  static nanoseconds parse(std::string_view text) {
    const nanoseconds value = parse_duration(text);
    if (value <= nanoseconds{0})
      throw exception{errc::invalid_argument, "'" + std::string{text} + "' must be more than 0"};
    return value;
  }
  static std::string print(nanoseconds value) { return format_duration(value); }
};

/// Empty where none is chosen.
struct path {
  static constexpr std::string_view form = "PATH";
  static std::optional<std::filesystem::path> parse(std::string_view text) {
    return text.empty() ? std::nullopt : std::optional{std::filesystem::path{text}};
  }
  static std::string print(const std::optional<std::filesystem::path>& value) { return value ? value->string() : ""; }
};

/// One list for each device, with semicolons between them.
struct cpu_lists {
  static constexpr std::string_view form = "CPUS;CPUS...";
  static std::vector<cpu_set> parse(std::string_view text) {
    std::vector<cpu_set> lists;
    while (!text.empty()) {
      const std::size_t end = text.find(';');
      lists.push_back(parse_cpu_set(text.substr(0, end)));
      text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    }
    return lists;
  }
  static std::string print(const std::vector<cpu_set>& lists) {
    std::string text;
    for (std::size_t i = 0; i < lists.size(); ++i) text += (i == 0 ? "" : ";") + to_string(lists[i]);
    return text;
  }
};

struct log_level {
  static constexpr std::string_view form = "NAME";
  static std::string parse(std::string_view text) {
    if (std::ranges::find(log_levels, text) == log_levels.end())
      throw exception{errc::invalid_argument, "'" + std::string{text} +
                                                  "' is no log level: choose one of trace, debug, info, warn, error, "
                                                  "off"};
    return std::string{text};
  }
  static std::string print(const std::string& value) { return value; }
};

/// The setting that is found by following the members \p Path from a configuration, and is written as a \p Form. Its
/// variable and its option are its name in other letters: a.b_c, TROUPE_A_B_C, --a-b-c.
template <class Form, auto... Path>
setting at(std::string_view group, std::string_view name, std::string_view description) {
  std::string variable = "TROUPE_", option = "--";
  for (const char letter : name) {
    const bool is_letter = letter >= 'a' && letter <= 'z';
    variable += is_letter ? static_cast<char>(letter - 'a' + 'A') : '_';
    option += is_letter ? letter : '-';
  }
  return {.name = name,
          .variable = std::move(variable),
          .option = std::move(option),
          .group = group,
          .description = description,
          .form = Form::form,
          .set = [](configuration& settings, std::string_view text) { (settings.*....*Path) = Form::parse(text); },
          .text = [](const configuration& settings) { return Form::print((settings.*....*Path)); }};
}

/// For shorter ones that people know already.
setting called(std::string variable, std::string option, setting one) {
  one.variable = std::move(variable);
  one.option = std::move(option);
  return one;
}

std::vector<setting> make_table() {
  using c = configuration;
  using d = world_deadlines;
  using l = track_limits;
  constexpr std::string_view usual = "Runtime", mock = "Mock", time = "Deadlines and limits";
  return {
      at<named<parse_backend_choice>, &c::backend>(usual, "backend", "what moves the data: auto, mock or nccl"),
      at<number<int, 0>, &c::ranks>(usual, "ranks", "of a world in this process alone; 0 is one for each device"),
      at<named<parse_latency_profile>, &c::profile>(
          usual, "profile", "how long threads spin before parking: latency, balanced or frugal"),
      at<named<parse_completion_strategy>, &c::strategy>(usual, "strategy",
                                                         "how completions are seen: auto, flag, event or host_fn"),
      at<named<parse_thread_placement>, &c::placement>(usual, "placement",
                                                       "where launchers and poller run: near (their GPUs) or none"),
      called("TROUPE_NCCL_LIBRARY", "--nccl",
             at<path, &c::nccl_library>(usual, "nccl_library",
                                        "the NCCL library; empty is the one that the linker finds")),
      at<byte_size<0>, &c::pool_reserve_bytes>(usual, "pool_reserve_bytes", "reserved on each device at the start"),
      at<number<std::size_t, 0>, &c::scheduler_threads>(usual, "scheduler_threads",
                                                        "of the actor system; 0 is an eighth of the cores, 2 to 8"),
      called("TROUPE_LOG", "--log",
             at<log_level, &c::log_level>(usual, "log_level", "trace, debug, info, warn, error or off")),
      at<number<int, 1>, &c::mock_devices>(mock, "mock.devices", "pretend devices"),
      at<byte_size<1>, &c::mock_memory_bytes>(mock, "mock.memory_bytes", "memory of each pretend device"),
      at<cpu_lists, &c::mock_cpus>(mock, "mock.cpus", "that each pretend device pretends to be near to, as 0-3;4-7"),
      at<duration, &c::deadlines, &d::form>(time, "deadlines.form", "to form a world, other processes included"),
      at<duration, &c::deadlines, &d::operation>(time, "deadlines.operation", "to answer a request that names none"),
      at<duration, &c::deadlines, &d::drain>(time, "deadlines.drain", "to finish what is in flight when a world stops"),
      at<duration, &c::deadlines, &d::release>(time, "deadlines.release", "to release a stopped world's communicators"),
      at<duration, &c::deadlines, &d::abort>(time, "deadlines.abort", "to abort a failed world's communicators"),
      at<duration, &c::limits, &l::launch>(time, "limits.launch", "a launch call that takes longer is stuck"),
      at<duration, &c::limits, &l::hang>(time, "limits.hang", "an operation that runs longer on a device is hung"),
      at<duration, &c::limits, &l::check_interval>(time, "limits.check_interval", "between looks at all of these"),
      at<duration, &c::limits, &l::quiet>(time, "limits.quiet",
                                          "without completions until a stream is asked for errors"),
  };
}

/// Letters to insert, drop or change to come from one to the other; 0 where the one is a part of the other.
std::size_t distance(std::string_view from, std::string_view to) {
  if (!from.empty() && to.find(from) != std::string_view::npos) return 0;
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t changed = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

} // namespace

std::span<const setting> all_settings() {
  static const std::vector<setting> table = make_table();
  return table;
}

const setting& find_setting(std::string_view name) {
  const auto all = all_settings();
  const auto found = std::ranges::find(all, name, &setting::name);
  if (found != all.end()) return *found;
  const auto nearest =
      std::ranges::min_element(all, {}, [name](const setting& one) { return distance(name, one.name); });
  throw exception{errc::invalid_argument, "there is no setting '" + std::string{name} + "'; the nearest is '" +
                                              std::string{nearest->name} + "' (troupe config lists all)"};
}

} // namespace troupe
