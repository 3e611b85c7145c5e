/// Identifies a world and its epoch.
#pragma once

#include <troupe/device/identity.hpp>

#include <cstdint>

namespace troupe {

/// A world keeps its number through all its epochs. The number is unique in the process. 0: no world.
struct world_stamp {
  std::uint64_t world = 0;
  troupe::epoch epoch{};

  friend bool operator==(const world_stamp&, const world_stamp&) = default;
};

} // namespace troupe
