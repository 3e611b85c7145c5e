/// Describes work on a whole world during which no operation may be in flight.
#pragma once

#include <troupe/collectives/pipeline/rank_pipeline.hpp>

#include <functional>
#include <string>

namespace troupe {

/// One piece of work, for example a split, a registration of memory, or one half of a suspension. The world holds
/// requests, waits until the launched operations have ended, runs the work, and continues.
struct maintenance {
  std::string name; ///< The name for people: "the split".
  /// For work that waits for more than its turn: returns whether it is due now. The world stays held until then.
  std::function<bool()> is_due{};
  /// The part of every local rank. It runs in helpers, for all ranks at once, because ranks may wait for each other. An
  /// exception fails the world.
  std::function<void(rank_pipeline&)> step{};
  /// Called once in the world's actor: errc::none when all parts are done, else why the work was not done.
  std::function<void(const error&)> done{};
};

} // namespace troupe
