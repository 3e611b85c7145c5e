#include <troupe/runtime/configuration/whole_number.hpp>

#include <charconv>

namespace troupe {

std::optional<std::uint64_t> parse_whole_number(std::string_view text) noexcept {
  std::uint64_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, problem] = std::from_chars(text.data(), last, value);
  return problem == std::errc{} && end == last ? std::optional{value} : std::nullopt;
}

} // namespace troupe
