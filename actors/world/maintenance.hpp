/// Work on a whole world for which nothing may be in flight.
#pragma once

#include <troupe/collectives/pipeline/rank_pipeline.hpp>

#include <functional>
#include <string>

namespace troupe {

/// A split, a registration of memory, the two halves of a suspension. The world holds requests, waits until what was
/// launched is over, does this, and goes on.
struct maintenance {
  std::string name; ///< For people: "the split".
  /// Whether it is to be done now, where it waits for something else than its turn; the world stays held until then.
  std::function<bool()> is_due{};
  /// Every local rank's part, in a helper; all at once, for they may meet. What it throws fails the world.
  std::function<void(rank_pipeline&)> step{};
  /// In the world's actor, once: errc::none when all parts are done, else why it was not done.
  std::function<void(const error&)> done{};
};

} // namespace troupe
