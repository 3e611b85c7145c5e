/// What all handles of one world share. Not for users.
#pragma once

#include <troupe/actors/world_actor.hpp>
#include <troupe/device/memory_pool.hpp>
#include <troupe/runtime/world.hpp>

#include <memory>
#include <vector>

namespace troupe {

class world::core {
public:
  std::shared_ptr<world_board> board;
  spawned_world actors;
  int world_size = 0;
  std::vector<rank> local_ranks;
  std::vector<std::shared_ptr<memory_pool>> pools; ///< In the order of local_ranks.
  world_deadlines deadlines;
};

} // namespace troupe
