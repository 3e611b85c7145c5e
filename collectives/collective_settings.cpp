#include <troupe/collectives/collective_settings.hpp>
#include <troupe/device/error.hpp>

#include <array>
#include <string>
#include <utility>

namespace troupe {

namespace {

constexpr std::array<std::pair<fusion, std::string_view>, 3> mode_names{
    {{fusion::off, "off"}, {fusion::plans, "plans"}, {fusion::free, "free"}}};

} // namespace

std::string_view to_string(fusion mode) noexcept {
  for (const auto& [known, name] : mode_names)
    if (known == mode) return name;
  return {};
}

fusion parse_fusion(std::string_view name) {
  for (const auto& [mode, known] : mode_names)
    if (known == name) return mode;
  throw exception{errc::invalid_argument,
                  "unknown fusion mode '" + std::string{name} + "': choose one of off, plans, free"};
}

} // namespace troupe
