/// The ranks of a world: how many it has, which of them are in this process, and which have left.
#pragma once

#include <troupe/actors/world/world_event.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <vector>

namespace troupe {

/// Keeps the numbers of a world's ranks in the present epoch and in the first one. Threads: one at a time.
class world_ranks {
public:
  /// \p local must be ascending and not empty.
  world_ranks(int world_size, std::vector<rank> local);

  [[nodiscard]] int world_size() const noexcept { return world_size_; }
  /// Returns the number of ranks in the first epoch.
  [[nodiscard]] int began_with() const noexcept { return began_with_; }
  /// Returns the present numbers of this process's ranks.
  [[nodiscard]] const std::vector<rank>& local() const noexcept { return local_; }
  [[nodiscard]] std::size_t local_count() const noexcept { return local_.size(); }
  /// Returns the numbers of local() in the first epoch.
  [[nodiscard]] const std::vector<rank>& origins() const noexcept { return origins_; }
  [[nodiscard]] const std::vector<lost_rank>& lost() const noexcept { return lost_; }

  /// Removes \p gone, given by their present numbers, of a world whose ranks are all local. \p last_in was their last
  /// epoch. The others get new numbers, in their present order.
  void lose(const std::vector<rank>& gone, epoch last_in);
  /// Sets the number that the controller has given to the only local rank. \p is_first: for the first epoch.
  void renumber(int world_size, rank self, bool is_first);

private:
  int world_size_;
  const int began_with_;
  std::vector<rank> local_;
  std::vector<rank> origins_; ///< In the order of local_.
  std::vector<lost_rank> lost_;
};

} // namespace troupe
