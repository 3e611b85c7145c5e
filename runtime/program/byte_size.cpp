#include "byte_size.hpp"

#include <troupe/device/error.hpp>

#include <charconv>
#include <limits>

namespace troupe::program {

std::size_t parse_byte_size(const std::string& text) {
  std::size_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, problem] = std::from_chars(text.data(), last, value);
  std::size_t unit = 1;
  bool good = problem == std::errc{};
  if (good && end + 1 == last) switch (*end) {
      case 'k':
      case 'K': unit = std::size_t{1} << 10U; break;
      case 'm':
      case 'M': unit = std::size_t{1} << 20U; break;
      case 'g':
      case 'G': unit = std::size_t{1} << 30U; break;
      default: good = false;
    }
  else
    good = good && end == last;
  if (!good || value > std::numeric_limits<std::size_t>::max() / unit)
    throw exception{errc::invalid_argument,
                    "'" + text + "' is no size: write a whole number of bytes, or one followed by K, M or G"};
  return value * unit;
}

} // namespace troupe::program
