#include <troupe/program/simulate/seed_range.hpp>

#include <troupe/device/error.hpp>

#include <charconv>
#include <limits>
#include <string>

namespace troupe::program {

namespace {

std::uint64_t parse_seed(std::string_view text, std::string_view whole) {
  std::uint64_t seed = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (problem != std::errc{} || end != text.data() + text.size())
    throw exception{errc::invalid_argument,
                    "'" + std::string{whole} + "' names no seeds: write the first and the last, as 1..1000, or one"};
  return seed;
}

} // namespace

seed_range parse_seed_range(std::string_view text) {
  const auto dots = text.find("..");
  const seed_range range{
      parse_seed(text.substr(0, dots), text),
      parse_seed(dots == std::string_view::npos ? text : text.substr(dots + 2), text),
  };
  if (range.last < range.first || range.last == std::numeric_limits<std::uint64_t>::max())
    throw exception{errc::invalid_argument, "the seeds " + std::string{text} + " end before they begin, or never"};
  return range;
}

} // namespace troupe::program
