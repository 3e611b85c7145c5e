/// Which world, and which life of it.
#pragma once

#include <troupe/device/identity.hpp>

#include <cstdint>

namespace troupe {

/// A world keeps its number through all its epochs; no other of the process has it. 0: of no world.
struct world_stamp {
  std::uint64_t world = 0;
  troupe::epoch epoch{};

  friend bool operator==(const world_stamp&, const world_stamp&) = default;
};

} // namespace troupe
