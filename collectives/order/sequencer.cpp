#include <troupe/collectives/order/sequencer_state.hpp>

#include <algorithm>

namespace troupe {

namespace {

error refuse(errc code, rank self, std::string text) {
  return error{.code = code, .text = std::move(text), .rank = self};
}

std::string name_lane(const lane& one) {
  return "lane " + one.name();
}

/// Returns an error for a peer that is not in the world, or none.
error check_peers(const operation& what, rank self, int size) {
  const auto check = [&](rank peer) -> error {
    if (peer.value() >= 0 && peer.value() < size) return {};
    return refuse(errc::invalid_argument, self,
                  "peer " + to_string(peer) + " is not in this world: its ranks are 0 to " + std::to_string(size - 1));
  };
  if (const auto* one = std::get_if<send>(&what)) return check(one->peer);
  if (const auto* one = std::get_if<recv>(&what)) return check(one->peer);
  if (const auto* several = std::get_if<group>(&what))
    for (const operation& part : several->parts)
      if (error failure = check_peers(part, self, size)) return failure;
  return {};
}

} // namespace

void sequencing_effects::clear() noexcept {
  released.clear();
  ends.clear();
  refused.clear();
  straggling.clear();
}

sequencer::sequencer(sequencer_limits limits) : state_{std::make_unique<state>(limits)} {}
sequencer::~sequencer() = default;

std::uint32_t sequencer::open_world(int size) {
  return state_->open_world(size);
}

void sequencer::close_world(std::uint32_t world, const error& why, sequencing_effects& effects) {
  state_->close_world(world, why, effects);
}

void sequencer::ask(std::unique_ptr<sequenced> one, sequencing_effects& effects) {
  state_->ask(std::move(one), effects);
}

bool sequencer::cancel(std::uint32_t world, rank self, lane where, std::uint64_t position,
                       sequencing_effects& effects) {
  return state_->cancel(world, self, where, position, effects);
}

void sequencer::withdraw(std::uint32_t world, rank self, std::uint64_t client, const error& why,
                         sequencing_effects& effects) {
  state_->withdraw(world, self, client, why, effects);
}

void sequencer::hold(std::uint32_t world, lane where) {
  state_->hold(world, where);
}

void sequencer::resume(std::uint32_t world, lane where, sequencing_effects& effects) {
  state_->resume(world, where, effects);
}

void sequencer::expire(time_point now, sequencing_effects& effects) {
  state_->expire(now, effects);
}

time_point sequencer::next_due() const noexcept {
  return state_->next_due();
}

std::size_t sequencer::waiting() const noexcept {
  return state_->waiting();
}

std::uint32_t sequencer::state::open_world(int size) {
  if (size < 1)
    throw exception{errc::invalid_argument,
                    "a world of " + std::to_string(size) + " ranks cannot be: it has 1 at least"};
  auto made = std::make_unique<world_table>();
  made->number = static_cast<std::uint32_t>(worlds_.size());
  made->size = size;
  made->unreleased.resize(static_cast<std::size_t>(size));
  made->last.resize(static_cast<std::size_t>(size));
  worlds_.push_back(std::move(made));
  return worlds_.back()->number;
}

sequencer::state::world_table* sequencer::state::find_world(std::uint32_t number) const noexcept {
  return number < worlds_.size() ? worlds_[number].get() : nullptr;
}

lane_table& sequencer::state::lane_of(world_table& there, lane name) {
  const std::size_t index = name.index();
  if (index >= there.lanes.size()) there.lanes.resize(index + 1);
  if (!there.lanes[index]) there.lanes[index] = std::make_unique<lane_table>(there.number, name, there.size, memory_);
  return *there.lanes[index];
}

lane_table* sequencer::state::find_lane(std::uint32_t number, rank self, lane name) const noexcept {
  const world_table* there = find_world(number);
  if (there == nullptr || self.value() < 0 || self.value() >= there->size) return nullptr;
  return name.index() < there->lanes.size() ? there->lanes[name.index()].get() : nullptr;
}

error sequencer::state::objection(const sequencing_terms& asked) const {
  const world_table* there = find_world(asked.world);
  if (there == nullptr)
    return refuse(errc::invalid_argument, asked.rank,
                  "world " + std::to_string(asked.world) + " has not been opened: " + std::to_string(worlds_.size()) +
                      " have been");
  if (there->closed) {
    error why = there->closed;
    why.rank = asked.rank;
    return why;
  }
  if (asked.rank.value() < 0 || asked.rank.value() >= there->size)
    return refuse(errc::invalid_argument, asked.rank,
                  "rank " + to_string(asked.rank) + " is not in this world: its ranks are 0 to " +
                      std::to_string(there->size - 1));
  const lane_table* at = find_lane(asked.world, asked.rank, asked.lane);
  const auto self = static_cast<std::size_t>(asked.rank.value());
  const std::uint64_t owner = at != nullptr ? at->queues[self].owner : 0;
  const std::uint64_t next = at != nullptr ? at->queues[self].next() : 0;
  if (owner != 0 && owner != asked.client)
    return refuse(errc::invalid_argument, asked.rank,
                  name_lane(asked.lane) + " of rank " + to_string(asked.rank) +
                      " belongs to another client, which asked there first: use a "
                      "lane of your own");
  if (asked.position && *asked.position != next) {
    const bool gap = *asked.position > next;
    return refuse(errc::invalid_argument, asked.rank,
                  "request " + std::to_string(*asked.position) + " of rank " + to_string(asked.rank) + " in " +
                      name_lane(asked.lane) + (gap ? " leaves a gap: " : " is a repetition: ") + std::to_string(next) +
                      " is the next" + (gap ? ", so ask for that first" : ", so it has been asked before"));
  }
  if (there->unreleased[self] >= limits_.lead)
    return refuse(errc::busy, asked.rank,
                  std::to_string(there->unreleased[self]) + " requests of rank " + to_string(asked.rank) +
                      " wait for its peers, and " + std::to_string(limits_.lead) +
                      " may: ask again when one of them has been answered");
  const lane_queue* const queue = at != nullptr ? &at->queues[self] : nullptr;
  if (queue != nullptr && queue->extent() >= limits_.lead)
    return refuse(errc::busy, asked.rank,
                  std::to_string(queue->extent()) + " requests of rank " + to_string(asked.rank) + " in " +
                      name_lane(asked.lane) + " wait or were taken back before its peers had come to them, and " +
                      std::to_string(limits_.lead) + " may: ask again when they have, or in another lane");
  return {};
}

void sequencer::state::ask(std::unique_ptr<sequenced> one, sequencing_effects& effects) {
  const sequencing_terms& asked = one->terms();
  error refusal = objection(asked);
  const operation& what = one->what();
  const matching by = matching_of(what);
  if (!refusal && by == matching::routes) refusal = check_peers(what, asked.rank, find_world(asked.world)->size);
  if (refusal) {
    effects.refused.push_back({std::move(one), std::move(refusal)});
    return;
  }
  world_table& there = *worlds_[asked.world];
  lane_table& at = lane_of(there, asked.lane);
  const int self = asked.rank.value();
  const auto index = static_cast<std::size_t>(self);
  lane_queue& queue = at.queues[index];
  if (asked.client != 0) queue.owner = asked.client;
  const compact_signature signed_as = one->sketch();
  there.last[index] = {signed_as, asked.lane, true, queue.next()};
  note_due(at, asked);
  switch (by) {
    case matching::all_ranks: join_meeting(at, self, signed_as, std::move(one), effects); break;
    case matching::routes: join_exchange(at, self, std::move(one), effects); break;
    case matching::nobody: join_nobody(at, self, std::move(one)); break;
  }
  settle(effects);
}

bool sequencer::state::enter(lane_table& at, int self, std::unique_ptr<sequenced> one, gathering* where) {
  lane_queue& queue = at.queues[static_cast<std::size_t>(self)];
  const bool first = queue.empty();
  queue.push({one.get(), where});
  (void)one.release(); // NOLINT(bugprone-unused-return-value): the lane owns it
  ++worlds_[at.world]->unreleased[static_cast<std::size_t>(self)];
  ++waiting_;
  return first;
}

void sequencer::state::join_nobody(lane_table& at, int self, std::unique_ptr<sequenced> one) {
  if (enter(at, self, std::move(one), nullptr)) come_to_head(at, self);
}

void sequencer::state::join_meeting(lane_table& at, int self, const compact_signature& what,
                                    std::unique_ptr<sequenced> one, sequencing_effects& effects) {
  lane_queue& queue = at.queues[static_cast<std::size_t>(self)];
  meeting& joined = at.meeting_at(queue.collectives++, meetings_);
  if (joined.withdrawn) {
    queue.push_refused();
    error why = refuse(errc::cancelled, rank{self}, joined.withdrawn->text);
    effects.refused.push_back({std::move(one), std::move(why), joined.withdrawn->absence});
    ++queue.withdrawn;
    if (++joined.come_by == at.queues.size()) at.forget_withdrawn(joined, meetings_);
    return;
  }
  if (joined.oldest == time_point::max()) {
    joined.agreed = what;
    joined.differs = !is_decided_by_compact(what);
  } else if (!(joined.agreed == what)) {
    joined.differs = true;
  }
  joined.oldest = std::min(joined.oldest, one->terms().asked);
  if (enter(at, self, std::move(one), &joined)) come_to_head(at, self);
}

void sequencer::state::join_exchange(lane_table& at, int self, std::unique_ptr<sequenced> one,
                                     sequencing_effects& effects) {
  exchange& joining = *exchanges_.take();
  joining.over = joining.straggling_told = joining.differs = false;
  joining.heads = 0;
  joining.oldest = one->terms().asked;
  joining.where = &at;
  joining.self = self;
  joining.position = at.queues[static_cast<std::size_t>(self)].next();
  joining.above = joining.next = &joining;
  joining.size = 1;
  joining.partnerless = joining.ranks = 0;
  const operation& what = one->what();
  std::shared_ptr<const withdrawal> told;
  if (const auto* several = std::get_if<group>(&what)) {
    // In the given order: parts with equal tags match in that order, and each tag is a route of its own.
    for (const operation& part : several->parts)
      if (!std::holds_alternative<copy>(part)) // a copy is local to this rank
        if (auto cause = join_route(at, joining, part)) told = std::move(cause);
  } else {
    told = join_route(at, joining, what);
  }
  if (enter(at, self, std::move(one), &joining)) come_to_head(at, self);
  if (told) return take_out(joining.root(), {.cause = std::move(told)}, effects);
  if (joining.root().partnerless == 0) complete(joining.root());
}

std::shared_ptr<const withdrawal> sequencer::state::join_route(lane_table& at, exchange& joining,
                                                               const operation& part) {
  transfer_end& end = *ends_.take();
  end.owner = &joining;
  end.partner = nullptr;
  end.sibling = joining.ends;
  joining.ends = &end;
  if (const auto* half = std::get_if<send>(&part)) {
    end.is_send = true;
    end.source = joining.self;
    end.destination = half->peer.value();
    end.tag = half->tag;
    end.count = half->count;
    end.type = half->type;
  } else {
    const auto& other_half = std::get<recv>(part);
    end.is_send = false;
    end.source = other_half.peer.value();
    end.destination = joining.self;
    end.tag = other_half.tag;
    end.count = other_half.count;
    end.type = other_half.type;
  }
  transfer_end* const other = at.routes.meet(end);
  if (other == nullptr) {
    ++joining.root().partnerless;
    return {};
  }
  if (other->owner == nullptr) {
    end.partner = &end; // it waits for no other half any more
    auto cause = std::move(other->withdrawn);
    --at.queues[static_cast<std::size_t>(other->is_send ? other->source : other->destination)].withdrawn;
    ends_.put_back(other);
    return cause;
  }
  end.partner = other;
  other->partner = &end;
  --other->owner->root().partnerless;
  exchange& root = unite(joining, *other->owner);
  root.differs = root.differs || end.count != other->count || end.type != other->type;
  return {};
}

} // namespace troupe
