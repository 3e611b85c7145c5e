#include <troupe/actors/world/world_ranks.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

world_ranks::world_ranks(int world_size, std::vector<rank> local)
  : world_size_{world_size}, began_with_{world_size}, local_{std::move(local)}, origins_{local_} {}

void world_ranks::lose(const std::vector<rank>& gone, epoch last_in) {
  std::vector<rank> stay;
  for (std::size_t i = 0; i < local_.size(); ++i) {
    if (std::ranges::find(gone, local_[i]) == gone.end()) {
      stay.push_back(origins_[i]);
      continue;
    }
    lost_.push_back({origins_[i], last_in});
  }
  origins_ = std::move(stay);
  world_size_ = static_cast<int>(origins_.size());
  local_.clear();
  for (int i = 0; i < world_size_; ++i) local_.emplace_back(i);
}

void world_ranks::renumber(int world_size, rank self, bool is_first) {
  world_size_ = world_size;
  local_ = {self};
  if (is_first) origins_ = local_;
}

} // namespace troupe
