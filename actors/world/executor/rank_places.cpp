#include <troupe/actors/world/executor/rank_places.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

namespace troupe {

rank_places::rank_places(std::vector<std::shared_ptr<collective_state>> states, world_shell& shell)
  : shell_{shell}, states_{std::move(states)}, places_(states_.size()) {
  std::iota(places_.begin(), places_.end(), std::size_t{0});
}

std::optional<std::size_t> rank_places::on_ended(std::size_t place) {
  if (const auto lost = lost_.find(place); lost != lost_.end()) { // later requests to this place get the same error
    states_[place] = shell_.replace_rank(place, lost->second.rank.value_or(rank{}));
    states_[place]->lose(lost->second);
    return std::nullopt;
  }
  ended_.insert(place);
  return static_cast<std::size_t>(std::ranges::find(places_, place) - places_.begin());
}

void rank_places::replace_ended(const std::vector<local_rank>& locals) {
  for (std::size_t i = 0; i < places_.size(); ++i)
    if (ended_.contains(places_[i])) states_[places_[i]] = shell_.replace_rank(places_[i], locals[i].self);
  ended_.clear();
}

void rank_places::close(const error& reason) {
  for (const std::size_t place : places_) states_[place]->close(reason);
}

void rank_places::lose(const std::vector<std::size_t>& gone, const std::vector<local_rank>& locals,
                       const error& reason) {
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const std::size_t place = places_[i];
    if (!std::ranges::binary_search(gone, i)) {
      kept.push_back(place);
      continue;
    }
    error told = reason;
    told.rank = locals[i].self;
    lost_[place] = told;
    if (ended_.erase(place) > 0) states_[place] = shell_.replace_rank(place, locals[i].self);
    states_[place]->lose(std::move(told));
  }
  places_ = std::move(kept);
}

} // namespace troupe
