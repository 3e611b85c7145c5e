#include <troupe/collectives/backend/hierarchy/hierarchy_terms.hpp>
#include <troupe/device/error.hpp>

#include <string>

namespace troupe {

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

bool has_hierarchy(const node_map& nodes, const hierarchy_terms& terms) noexcept {
  switch (terms.mode) {
    case hierarchy_mode::automatic: return nodes.shared_node_count() >= 2;
    case hierarchy_mode::always: return nodes.node_count() >= 2 && nodes.shared_node_count() >= 1;
    case hierarchy_mode::never: return false;
  }
  return false;
}

} // namespace troupe
