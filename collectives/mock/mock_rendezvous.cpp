#include <troupe/collectives/mock/mock_rendezvous.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace troupe {

namespace {

using id_bytes = std::array<std::byte, 128>;

struct registry {
  std::mutex guard;
  std::map<id_bytes, std::weak_ptr<mock_rendezvous>> places;
};

// Never destroyed: communicators held by static objects may go after it would have.
registry& the_registry() {
  static auto* const instance = new registry;
  return *instance;
}

error aborted_error(rank who) {
  return {.code = errc::communicator_failed, .text = "the communicator was aborted", .rank = who};
}

/// "rank 3", or "ranks 0, 1, 2 and 997 more".
std::string name_ranks(const std::vector<std::size_t>& ranks) {
  constexpr std::size_t most = 8;
  std::string names = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(most, ranks.size()); ++i)
    names += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > most) names += " and " + std::to_string(ranks.size() - most) + " more";
  return names;
}

/// Who asked for what, in order of the lowest rank that asked for it.
std::string name_disagreement(std::uint64_t ordinal, const std::vector<std::optional<mock_arrival>>& arrivals) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> camps;
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    const auto camp = std::ranges::find(camps, arrivals[i]->text, [](const auto& one) { return one.first; });
    if (camp == camps.end())
      camps.emplace_back(arrivals[i]->text, std::vector{i});
    else
      camp->second.push_back(i);
  }
  std::string text = "ranks disagree about operation " + std::to_string(ordinal) + " of the communicator (from 0): ";
  for (const auto& [what, ranks] : camps) {
    if (&what != &camps.front().first) text += "; ";
    text += name_ranks(ranks) + " asked for " + what;
  }
  return text;
}

} // namespace

std::shared_ptr<mock_rendezvous> mock_rendezvous::find_or_make(const unique_id& id, int world_size) {
  registry& all = the_registry();
  std::shared_ptr<mock_rendezvous> place; // outlives the lock, since its end takes it
  const std::lock_guard lock{all.guard};
  std::weak_ptr<mock_rendezvous>& entry = all.places[id.bytes];
  place = entry.lock();
  if (!place) entry = place = std::make_shared<mock_rendezvous>(id, world_size);
  if (place->members_.size() != static_cast<std::size_t>(world_size))
    throw exception{errc::invalid_argument, "the unique id names a world of " + std::to_string(place->members_.size()) +
                                                " ranks, not of " + std::to_string(world_size)};
  return place;
}

mock_rendezvous::mock_rendezvous(const unique_id& id, int world_size)
  : id_{id}, members_(static_cast<std::size_t>(world_size)) {}

mock_rendezvous::~mock_rendezvous() {
  registry& all = the_registry();
  const std::lock_guard lock{all.guard};
  const auto entry = all.places.find(id_.bytes);
  if (entry != all.places.end() && entry->second.expired()) all.places.erase(entry); // not a successor's
}

void mock_rendezvous::join(rank self, std::shared_ptr<mock_waker> engine) {
  std::unique_lock lock{guard_};
  member& me = member_of(self);
  if (me.aborted) throw exception{aborted_error(self)};
  if (me.engine)
    throw exception{errc::invalid_argument, "rank " + to_string(self) + " has come to this formation before"};
  me.engine = std::move(engine);
  // A peer that came and was aborted is not there: then, as with a network, this waits for ever, or for abort().
  formed_ = std::ranges::all_of(members_, [](const member& one) { return one.engine && !one.aborted; });
  if (formed_) joined_changed_.notify_all();
  joined_changed_.wait(lock, [&] { return formed_ || me.aborted; });
  if (me.aborted) throw exception{aborted_error(self)};
}

progress mock_rendezvous::meet(rank self, std::uint64_t ordinal, const mock_arrival& arrival) {
  const std::lock_guard lock{guard_};
  if (member_of(self).aborted) return progress::reached; // completion is not success
  meeting& here = meetings_[ordinal];
  here.arrivals.resize(members_.size());
  auto& mine = here.arrivals[static_cast<std::size_t>(self.value())];
  if (!mine) {
    mine = arrival;
    if (++here.present == members_.size()) conclude(ordinal, here);
  }
  if (!here.over) return progress::pending;
  if (++here.gone == members_.size()) meetings_.erase(ordinal);
  return progress::reached;
}

void mock_rendezvous::conclude(std::uint64_t ordinal, meeting& all) {
  const mock_arrival& first = *all.arrivals.front();
  if (mismatch_) return; // a communicator that has failed does nothing more
  if (!std::ranges::all_of(all.arrivals, [&](const auto& one) { return one->asks_the_same(first); })) {
    mismatch_ = error{.code = errc::mismatch, .text = name_disagreement(ordinal, all.arrivals)};
    return;
  }
  std::vector<reduce_part> parts;
  parts.reserve(all.arrivals.size());
  for (const auto& one : all.arrivals) parts.push_back(one->memory);
  reduce_parts(parts, first.count, first.type, first.op); // nothing to do for a barrier, whose count is 0
  all.over = true;
  wake_all();
}

void mock_rendezvous::leave(rank self, std::uint64_t ordinal) noexcept {
  const std::lock_guard lock{guard_};
  const auto found = meetings_.find(ordinal);
  if (found == meetings_.end()) return;
  auto& mine = found->second.arrivals[static_cast<std::size_t>(self.value())];
  if (!mine || found->second.over) return;
  mine.reset();
  --found->second.present;
}

void mock_rendezvous::check(rank self) const {
  const std::lock_guard lock{guard_};
  if (mismatch_) {
    error why = *mismatch_;
    why.rank = self;
    throw exception{std::move(why)};
  }
  if (member_of(self).aborted) throw exception{aborted_error(self)};
}

void mock_rendezvous::abort(rank self) noexcept {
  {
    const std::lock_guard lock{guard_};
    member& me = member_of(self);
    me.aborted = true;
    for (auto& [ordinal, here] : meetings_) {
      auto& mine = here.arrivals[static_cast<std::size_t>(self.value())];
      if (!mine || here.over) continue;
      mine.reset();
      --here.present;
    }
    if (me.engine) me.engine->wake();
  }
  joined_changed_.notify_all();
}

void mock_rendezvous::wake_all() const noexcept {
  for (const member& one : members_) one.engine->wake();
}

} // namespace troupe
