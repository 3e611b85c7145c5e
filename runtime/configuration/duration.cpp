#include <troupe/runtime/configuration/duration.hpp>
#include <troupe/runtime/configuration/whole_number.hpp>

#include <troupe/device/error.hpp>

#include <cstdint>
#include <limits>

namespace troupe {

namespace {

struct time_unit {
  std::string_view name;
  std::uint64_t nanoseconds;
};
constexpr time_unit time_units[] = {
    {"min", 60'000'000'000}, {"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}};

} // namespace

std::chrono::nanoseconds parse_duration(std::string_view text) {
  const std::size_t end_of_digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto count = parse_whole_number(text.substr(0, end_of_digits));
  const std::string quoted = "'" + std::string{text} + "'";
  if (count && end_of_digits == text.size())
    throw exception{errc::invalid_argument, quoted + " has no unit: write " + std::string{text} + "s, " +
                                                std::string{text} + "ms, " + std::string{text} + "us or " +
                                                std::string{text} + "ns"};
  for (const auto& [name, in_nanoseconds] : time_units) {
    if (!count || text.substr(end_of_digits) != name) continue;
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (*count > most / in_nanoseconds)
      throw exception{errc::invalid_argument, quoted + " is too long: write at most 100 years"};
    return std::chrono::nanoseconds{static_cast<std::int64_t>(*count * in_nanoseconds)};
  }
  throw exception{errc::invalid_argument,
                  quoted +
                      " is not a duration: write a whole number followed by ns, us, ms, s or min, for example 250ms"};
}

std::string format_duration(std::chrono::nanoseconds span) {
  if (span.count() < 0) return std::to_string(span.count()) + "ns"; // negative spans appear in messages only
  const auto count = static_cast<std::uint64_t>(span.count());
  for (const auto& [name, in_nanoseconds] : time_units)
    if (name != "min" && count % in_nanoseconds == 0) return std::to_string(count / in_nanoseconds) + std::string{name};
  return {};
}

} // namespace troupe
