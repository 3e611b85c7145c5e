#include <troupe/runtime/configuration/user_input.hpp>

#include <troupe/device/error.hpp>

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace troupe {

namespace {

struct size_unit {
  char letter;
  std::size_t bytes;
};
constexpr size_unit size_units[] = {
    {'G', std::size_t{1} << 30U}, {'M', std::size_t{1} << 20U}, {'K', std::size_t{1} << 10U}};

struct time_unit {
  std::string_view name;
  std::uint64_t nanoseconds;
};
constexpr time_unit time_units[] = {
    {"min", 60'000'000'000}, {"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}};

[[noreturn]] void refuse_input(std::string_view text, const std::string& why) {
  throw exception{errc::invalid_argument, "'" + std::string{text} + "' " + why};
}

} // namespace

std::optional<std::uint64_t> parse_whole_number(std::string_view text) noexcept {
  std::uint64_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, problem] = std::from_chars(text.data(), last, value);
  return problem == std::errc{} && end == last ? std::optional{value} : std::nullopt;
}

std::size_t parse_byte_size(std::string_view text) {
  std::string_view digits = text;
  std::size_t factor = 1;
  for (const auto [letter, bytes] : size_units)
    if (!text.empty() && (text.back() == letter || text.back() == letter - 'A' + 'a')) {
      digits.remove_suffix(1);
      factor = bytes;
    }
  const auto value = parse_whole_number(digits);
  if (!value || *value > std::numeric_limits<std::size_t>::max() / factor)
    refuse_input(text, "is not a size: write a whole number of bytes, or one followed by K, M or G");
  return *value * factor;
}

std::string format_byte_size(std::size_t bytes) {
  for (const auto [letter, size] : size_units)
    if (bytes != 0 && bytes % size == 0) return std::to_string(bytes / size) + letter;
  return std::to_string(bytes);
}

std::chrono::nanoseconds parse_duration(std::string_view text) {
  const std::size_t end_of_digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto count = parse_whole_number(text.substr(0, end_of_digits));
  if (count && end_of_digits == text.size()) {
    const std::string digits{text};
    refuse_input(text, "has no unit: write " + digits + "s, " + digits + "ms, " + digits + "us or " + digits + "ns");
  }
  for (const auto& [name, in_nanoseconds] : time_units) {
    if (!count || text.substr(end_of_digits) != name) continue;
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (*count > most / in_nanoseconds) refuse_input(text, "is too long: write at most 100 years");
    return std::chrono::nanoseconds{static_cast<std::int64_t>(*count * in_nanoseconds)};
  }
  refuse_input(text, "is not a duration: write a whole number followed by ns, us, ms, s or min, for example 250ms");
}

std::string format_duration(std::chrono::nanoseconds span) {
  if (span.count() < 0) return std::to_string(span.count()) + "ns"; // negative spans appear in messages only
  const auto count = static_cast<std::uint64_t>(span.count());
  for (const auto& [name, in_nanoseconds] : time_units)
    if (name != "min" && count % in_nanoseconds == 0) return std::to_string(count / in_nanoseconds) + std::string{name};
  return {};
}

bool control_address::is_loopback() const {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

control_address parse_control_address(std::string_view text) {
  const auto colon = text.rfind(':');
  const auto port = colon == std::string_view::npos ? std::nullopt : parse_whole_number(text.substr(colon + 1));
  if (!port || *port > std::numeric_limits<std::uint16_t>::max() || colon == 0)
    refuse_input(text, "is not an address of a controller: write HOST:PORT, for example 127.0.0.1:27700");
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {std::string{host}, static_cast<std::uint16_t>(*port)};
}

std::string to_string(const control_address& where) {
  const bool is_ipv6 = where.host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + where.host + "]" : where.host) + ":" + std::to_string(where.port);
}

std::size_t edit_distance(std::string_view from, std::string_view to) {
  // Rows for i - 1, i and i + 1 letters of `from`.
  std::vector<std::size_t> before, last(to.size() + 1), row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < to.size(); ++j) {
      row[j + 1] = std::min({last[j] + (from[i] == to[j] ? 0 : 1), row[j] + 1, last[j + 1] + 1});
      if (i > 0 && j > 0 && from[i] == to[j - 1] && from[i - 1] == to[j])
        row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
    }
  }
  return row.back();
}

const std::string& nearest_name(std::string_view name, std::span<const std::string> known) {
  return *std::ranges::min_element(known, {}, [name](const std::string& one) {
    return !name.empty() && one.find(name) != std::string::npos ? 0 : edit_distance(name, one);
  });
}

} // namespace troupe
