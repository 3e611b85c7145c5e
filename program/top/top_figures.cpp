#include <troupe/program/top/top_view.hpp>

#include <array>
#include <cmath>
#include <cstdio>

namespace troupe::program {

namespace {

/// Formats three significant digits: 1.23, 12.3, 123.
std::string three_digits(double value, const char* unit) {
  std::array<char, 32> text{};
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::snprintf(text.data(), text.size(), "%.*f%s", digits, value, unit);
  return text.data();
}

} // namespace

std::string short_number(double value) {
  if (std::isnan(value)) return "-";
  if (value == 0) return "0";
  if (value < 999.5)
    return value == std::floor(value)
               ? three_digits(value, "").substr(0, std::to_string(static_cast<int>(value)).size())
               : three_digits(value, "");
  if (value < 999.5e3) return three_digits(value / 1e3, "k");
  if (value < 999.5e6) return three_digits(value / 1e6, "M");
  return three_digits(value / 1e9, "G");
}

std::string short_bytes(double value) {
  if (std::isnan(value)) return "-";
  if (value == 0) return "0";
  if (value < 999.5e3) return three_digits(value / 1e3, "k");
  if (value < 999.5e6) return three_digits(value / 1e6, "M");
  if (value < 999.5e9) return three_digits(value / 1e9, "G");
  return three_digits(value / 1e12, "T");
}

std::string short_time(double seconds) {
  if (std::isnan(seconds)) return "-";
  if (seconds < 999.5e-6) return three_digits(seconds * 1e6, "us");
  if (seconds < 0.9995) return three_digits(seconds * 1e3, "ms");
  if (seconds < 99.95) return three_digits(seconds, "s");
  const auto whole = static_cast<long>(seconds);
  std::array<char, 32> text{};
  if (whole < 3600)
    std::snprintf(text.data(), text.size(), "%ldm%02lds", whole / 60, whole % 60);
  else
    std::snprintf(text.data(), text.size(), "%ldh%02ldm", whole / 3600, whole / 60 % 60);
  return text.data();
}

} // namespace troupe::program
