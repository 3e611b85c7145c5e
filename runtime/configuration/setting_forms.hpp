/// How the values of settings are parsed and printed. Internal.
#pragma once

#include <troupe/runtime/configuration/byte_size.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/configuration/duration.hpp>
#include <troupe/runtime/configuration/whole_number.hpp>
#include <troupe/runtime/recording/record_on_signal.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Each form has parse() (errors: invalid_argument), print(), and `form`, its name in --help. The form of a number also
/// has range(), which describes the range in words, and fits(), which says whether a value is in it.
namespace troupe::setting_forms {

template <auto Parse>
struct named {
  static constexpr std::string_view form = "NAME";
  static auto parse(std::string_view text) { return Parse(text); }
  static std::string print(auto value) { return std::string{to_string(value)}; }
};

/// A whole number from Least to Most.
template <class Number, std::uint64_t Least, std::uint64_t Most>
struct number {
  static constexpr std::string_view form = "NUMBER";
  static std::string range() { return std::to_string(Least) + " to " + std::to_string(Most); }
  static bool fits(Number value) { return std::cmp_greater_equal(value, Least) && std::cmp_less_equal(value, Most); }
  static Number parse(std::string_view text) {
    const auto value = parse_whole_number(text);
    if (!value || std::cmp_less(*value, Least) || *value > Most)
      throw exception{errc::invalid_argument, "'" + std::string{text} + "' must be a whole number from " + range()};
    return static_cast<Number>(*value);
  }
  static std::string print(Number value) { return std::to_string(value); }
};

/// A size in bytes, from Least to Most.
template <std::size_t Least, std::size_t Most>
struct byte_size {
  static constexpr std::string_view form = "SIZE";
  static std::string range() { return format_byte_size(Least) + " to " + format_byte_size(Most); }
  static bool fits(std::size_t value) { return std::cmp_greater_equal(value, Least) && value <= Most; }
  static std::size_t parse(std::string_view text) {
    const std::size_t value = parse_byte_size(text);
    if (!fits(value)) throw exception{errc::invalid_argument, "'" + std::string{text} + "' must be from " + range()};
    return value;
  }
  static std::string print(std::size_t value) { return format_byte_size(value); }
};

/// A duration of Least to Most nanoseconds.
template <std::int64_t Least, std::int64_t Most>
struct duration {
  static constexpr std::string_view form = "DURATION";
  static std::string range() {
    return format_duration(nanoseconds{Least}) + " to " + format_duration(nanoseconds{Most});
  }
  static bool fits(nanoseconds value) { return value >= nanoseconds{Least} && value <= nanoseconds{Most}; }
  static nanoseconds parse(std::string_view text) {
    const nanoseconds value = parse_duration(text);
    if (!fits(value)) throw exception{errc::invalid_argument, "'" + std::string{text} + "' must be from " + range()};
    return value;
  }
  static std::string print(nanoseconds value) { return format_duration(value); }
};

/// A duration of Least to Most nanoseconds, or "0".
template <std::int64_t Least, std::int64_t Most>
struct duration_or_zero {
  using above = duration<Least, Most>;
  static constexpr std::string_view form = "DURATION";
  static std::string range() { return above::range() + ", or 0"; }
  static bool fits(nanoseconds value) { return value == nanoseconds{0} || above::fits(value); }
  static nanoseconds parse(std::string_view text) { return text == "0" ? nanoseconds{0} : above::parse(text); }
  static std::string print(nanoseconds value) { return value == nanoseconds{0} ? "0" : format_duration(value); }
};

/// A signal's name. Empty: none.
struct record_signal {
  static constexpr std::string_view form = "NAME";
  static int parse(std::string_view text) { return parse_record_signal(text); }
  static std::string print(int value) { return std::string{record_signal_name(value)}; }
};

/// A path. Empty: none.
struct path {
  static constexpr std::string_view form = "PATH";
  static std::optional<std::filesystem::path> parse(std::string_view text) {
    if (text.find('\0') != std::string_view::npos)
      throw exception{errc::invalid_argument, "'" + std::string{text} + "' is not a path: it contains a null byte"};
    return text.empty() ? std::nullopt : std::optional{std::filesystem::path{text}};
  }
  static std::string print(const std::optional<std::filesystem::path>& value) { return value ? value->string() : ""; }
};

/// One CPU list per device, separated by semicolons. Empty lists at the end are dropped.
struct cpu_lists {
  static constexpr std::string_view form = "CPUS;CPUS...";
  static std::vector<cpu_set> parse(std::string_view text) {
    std::vector<cpu_set> lists;
    while (!text.empty()) {
      const std::size_t end = text.find(';');
      lists.push_back(parse_cpu_set(text.substr(0, end)));
      text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    }
    return without_empty_end(std::move(lists));
  }
  static std::string print(std::vector<cpu_set> lists) {
    lists = without_empty_end(std::move(lists));
    std::string text;
    for (std::size_t i = 0; i < lists.size(); ++i) text += (i == 0 ? "" : ";") + to_string(lists[i]);
    return text;
  }

private:
  static std::vector<cpu_set> without_empty_end(std::vector<cpu_set> lists) {
    while (!lists.empty() && lists.back().empty()) lists.pop_back();
    return lists;
  }
};

/// A field of ncclConfig_t. Empty: NCCL chooses.
template <auto Member>
struct nccl_number {
  static constexpr std::string_view form = "COUNT";
  static std::string range() { return std::to_string(field().least) + " to " + std::to_string(field().most); }
  static bool fits(const std::optional<int>& value) {
    return !value || (*value >= field().least && *value <= field().most);
  }
  static std::optional<int> parse(std::string_view text) {
    if (text.empty()) return std::nullopt;
    nccl_options one;
    one.*Member = number<int, 0, std::numeric_limits<int>::max()>::parse(text);
    check(one);
    return one.*Member;
  }
  static std::string print(const std::optional<int>& value) { return value ? std::to_string(*value) : ""; }

private:
  static const nccl_field& field() { return *std::ranges::find(nccl_fields(), Member, &nccl_field::member); }
};

/// NCCL's policies for the use of thread blocks (CTAs). NCCL numbers them.
struct cta_policy {
  static constexpr std::string_view form = "NAME";
  static constexpr std::array<std::string_view, 3> names{"default", "efficiency", "zero"};
  static std::optional<int> parse(std::string_view text) {
    if (text.empty()) return std::nullopt;
    const auto found = std::ranges::find(names, text);
    if (found == names.end())
      throw exception{errc::invalid_argument,
                      "unknown policy '" + std::string{text} + "': choose one of default, efficiency, zero"};
    return static_cast<int>(found - names.begin());
  }
  static std::string print(const std::optional<int>& value) {
    return value ? std::string{names.at(static_cast<std::size_t>(*value))} : "";
  }
};

/// A path that is stored as it is. Empty: none.
struct file_path {
  static constexpr std::string_view form = "PATH";
  static std::filesystem::path parse(std::string_view text) { return text; }
  static std::string print(const std::filesystem::path& value) { return value.string(); }
};

struct plain_text {
  static constexpr std::string_view form = "TEXT";
  static std::string parse(std::string_view text) { return std::string{text}; }
  static std::string print(const std::string& value) { return value; }
};

struct gloo_interface : plain_text {
  static std::string parse(std::string_view text) {
    const gloo_options one{.interface_address = std::string{text}};
    check(one);
    return one.interface_address;
  }
};

struct metrics_place : plain_text {
  static std::string parse(std::string_view text) {
    if (!text.empty()) static_cast<void>(parse_metrics_address(text));
    return std::string{text};
  }
};

struct yes_or_no {
  static constexpr std::string_view form = "yes|no";
  static bool parse(std::string_view text) {
    if (text != "yes" && text != "no")
      throw exception{errc::invalid_argument, "'" + std::string{text} + "' must be yes or no"};
    return text == "yes";
  }
  static std::string print(bool value) { return value ? "yes" : "no"; }
};

/// The text of an NCCL variable, as in NCCL's manual. Empty: the variable is not changed.
template <auto Member>
struct nccl_variable_text : plain_text {
  static std::string parse(std::string_view text) {
    nccl_environment one;
    one.*Member = text;
    check(one);
    return one.*Member;
  }
};

struct nccl_other_variables {
  static constexpr std::string_view form = "NAME=VALUE;NAME=VALUE...";
  using list = std::vector<std::pair<std::string, std::string>>;
  static list parse(std::string_view text) {
    nccl_environment one;
    while (!text.empty()) {
      const std::string_view entry = text.substr(0, text.find(';'));
      text.remove_prefix(std::min(text.size(), entry.size() + 1));
      const std::size_t equals = entry.find('=');
      if (equals == std::string_view::npos || equals + 1 == entry.size())
        throw exception{errc::invalid_argument, "'" + std::string{entry} + "' must be NAME=VALUE"};
      one.others.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
    }
    check(one);
    return one.others;
  }
  static std::string print(const list& all) {
    std::string text;
    for (const auto& [name, value] : all) text += (text.empty() ? "" : ";") + name + "=" + value;
    return text;
  }
};

struct feature_list {
  static constexpr std::string_view form = "NAME,NAME...";
  static std::vector<feature> parse(std::string_view text) {
    std::vector<feature> all;
    while (!text.empty()) {
      const std::string_view name = text.substr(0, text.find(','));
      text.remove_prefix(std::min(text.size(), name.size() + 1));
      all.push_back(parse_feature(name));
    }
    return all;
  }
  static std::string print(const std::vector<feature>& all) {
    std::string text;
    for (const feature one : all) text += (text.empty() ? "" : ",") + std::string{to_string(one)};
    return text;
  }
};

struct count_list {
  using count = number<std::size_t, 1, 65'536>;
  static constexpr std::string_view form = "COUNT,COUNT...";
  static std::string range() { return count::range(); }
  static bool fits(const std::vector<std::size_t>& all) { return std::ranges::all_of(all, count::fits); }
  static std::vector<std::size_t> parse(std::string_view text) {
    std::vector<std::size_t> all;
    while (!text.empty()) {
      const std::string_view one = text.substr(0, text.find(','));
      text.remove_prefix(std::min(text.size(), one.size() + 1));
      all.push_back(count::parse(one));
    }
    return all;
  }
  static std::string print(const std::vector<std::size_t>& all) {
    std::string text;
    for (const std::size_t one : all) text += (text.empty() ? "" : ",") + std::to_string(one);
    return text;
  }
};

struct log_level {
  static constexpr std::string_view form = "NAME";
  static std::string parse(std::string_view text) {
    if (std::ranges::find(log_levels, text) == log_levels.end())
      throw exception{errc::invalid_argument, "unknown log level '" + std::string{text} +
                                                  "': choose one of trace, debug, info, warn, error, "
                                                  "off"};
    return std::string{text};
  }
  static std::string print(const std::string& value) { return value; }
};

} // namespace troupe::setting_forms
