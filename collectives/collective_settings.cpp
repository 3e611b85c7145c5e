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

std::string_view to_string(hierarchy_mode mode) noexcept {
  switch (mode) {
    case hierarchy_mode::automatic: return "auto";
    case hierarchy_mode::always: return "always";
    case hierarchy_mode::never: return "never";
  }
  return {};
}

hierarchy_mode parse_hierarchy_mode(std::string_view name) {
  for (const auto mode : {hierarchy_mode::automatic, hierarchy_mode::always, hierarchy_mode::never})
    if (to_string(mode) == name) return mode;
  throw exception{errc::invalid_argument,
                  "unknown hierarchy mode '" + std::string{name} + "': choose one of auto, always, never"};
}

} // namespace troupe
