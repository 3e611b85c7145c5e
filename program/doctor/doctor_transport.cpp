#include <troupe/program/doctor/doctor_transport.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

namespace troupe::program {

namespace {

/// NCCL's kinds of paths, nearest first; NCCL_P2P_LEVEL names the farthest that P2P is used over.
constexpr std::array<std::string_view, 10> levels{"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"};
constexpr std::size_t usual_level = 5; // PXB
/// What the numbers meant that older versions wanted.
constexpr std::array<std::size_t, 6> old_levels{0, 4, 5, 8, 9, 9};

struct p2p_level {
  std::size_t farthest = usual_level;
  std::string said_by = "by default";
  bool chosen = false;
};

p2p_level level_of(const nccl_variable_lookup& environment) {
  if (const auto disabled = environment("NCCL_P2P_DISABLE");
      disabled && std::strtol(disabled->c_str(), nullptr, 0) == 1)
    return {0, "NCCL_P2P_DISABLE=" + *disabled, true};
  const auto level = environment("NCCL_P2P_LEVEL");
  if (!level || level->empty()) return {};
  if (const auto found = std::ranges::find(levels, *level); found != levels.end())
    return {static_cast<std::size_t>(found - levels.begin()), "NCCL_P2P_LEVEL=" + *level, true};
  if (level->front() < '0' || level->front() > '9') return {};
  const auto number = static_cast<std::size_t>(std::strtoul(level->c_str(), nullptr, 0));
  return {old_levels.at(std::min(number, old_levels.size() - 1)), "NCCL_P2P_LEVEL=" + *level, true};
}

std::size_t path_of(link_kind link) {
  switch (link) {
    case link_kind::same: return 0;
    case link_kind::nvlink: return 1;
    case link_kind::pcie_switch: return 5; // at the farthest
    case link_kind::host_bridge: return 8;
    case link_kind::numa:
    case link_kind::unknown: break;
  }
  return 9;
}

} // namespace

deduced_transport deduce_transport(const device_pair& pair, std::size_t device_count,
                                   const nccl_variable_lookup& environment) {
  const p2p_level level = level_of(environment);
  const std::string link{to_string(pair.link)};
  const std::string bound = "P2P up to " + std::string{levels.at(level.farthest)} + " " + level.said_by;
  if (pair.peer_access && level.farthest > 0) {
    if (pair.link == link_kind::unknown && level.farthest < path_of(link_kind::numa))
      return {"unknown", "nobody tells what lies between the devices, and " + bound};
    if (path_of(pair.link) <= level.farthest) return {"P2P", "peer access over " + link + "; " + bound};
    // NCCL lets two GPUs of a host with AMD's CPUs reach each other over any distance.
    if (!level.chosen && device_count <= 2)
      return {"unknown", "peer access over " + link + ": P2P on a host with AMD's CPUs, else shared memory"};
  }
  const std::string why = pair.peer_access ? "over " + link + ", and " + bound : "no peer access";
  const auto disabled = environment("NCCL_SHM_DISABLE");
  if (disabled && std::strtol(disabled->c_str(), nullptr, 0) == 1)
    return {"NET", why + "; NCCL_SHM_DISABLE=" + *disabled};
  return {"SHM", why};
}

} // namespace troupe::program
