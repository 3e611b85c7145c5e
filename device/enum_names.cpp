#include <troupe/device/enum_names.hpp>
#include <troupe/device/error.hpp>

#include <algorithm>

namespace troupe {

std::string listed(std::span<const std::string_view> names) {
  std::string all;
  for (const std::string_view one : names) all.append(all.empty() ? "" : ", ").append(one);
  return all;
}

std::size_t index_in(std::span<const std::string_view> names, std::string_view what, std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  throw exception{errc::invalid_argument,
                  "unknown " + std::string{what} + " '" + std::string{name} + "': choose one of " + listed(names)};
}

} // namespace troupe
