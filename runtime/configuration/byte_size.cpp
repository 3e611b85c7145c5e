#include <troupe/runtime/configuration/byte_size.hpp>
#include <troupe/runtime/configuration/whole_number.hpp>

#include <troupe/device/error.hpp>

#include <limits>

namespace troupe {

namespace {

struct size_unit {
  char letter;
  std::size_t bytes;
};
constexpr size_unit size_units[] = {
    {'G', std::size_t{1} << 30U}, {'M', std::size_t{1} << 20U}, {'K', std::size_t{1} << 10U}};

} // namespace

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
    throw exception{errc::invalid_argument,
                    "'" + std::string{text} +
                        "' is not a size: write a whole number of bytes, or one followed by K, M "
                        "or G"};
  return *value * factor;
}

std::string format_byte_size(std::size_t bytes) {
  for (const auto [letter, size] : size_units)
    if (bytes != 0 && bytes % size == 0) return std::to_string(bytes / size) + letter;
  return std::to_string(bytes);
}

} // namespace troupe
