#include <troupe/collectives/operation/signature.hpp>
#include <troupe/collectives/order/sequencer.hpp>

#include <algorithm>
#include <tuple>
#include <utility>

namespace troupe {

namespace {

error refuse(errc code, rank self, std::string text) {
  return error{.code = code, .text = std::move(text), .rank = self};
}

std::string name_lane(const lane& one) {
  return "lane " + one.name();
}

/// Returns the first error of \p check for a peer of a send or recv in \p what, or none.
template <class Check>
error check_peers(const operation& what, const Check& check) {
  if (const auto* one = std::get_if<send>(&what)) return check(one->peer);
  if (const auto* one = std::get_if<recv>(&what)) return check(one->peer);
  if (const auto* several = std::get_if<group>(&what))
    for (const operation& part : several->parts)
      if (error failure = check_peers(part, check)) return failure;
  return {};
}

/// Returns an error for a peer that is not in the world, or none.
error check_peers(const operation& what, rank self, int size) {
  return check_peers(what, [&](rank peer) -> error {
    if (peer.value() >= 0 && peer.value() < size) return {};
    return refuse(errc::invalid_argument, self,
                  "peer " + to_string(peer) + " is not in this world: its ranks are 0 to " + std::to_string(size - 1));
  });
}

} // namespace

void sequencing_effects::clear() noexcept {
  released.clear();
  ends.clear();
  refused.clear();
  straggling.clear();
}

std::uint32_t sequencer::open_world(int size) {
  if (size < 1)
    throw exception{errc::invalid_argument,
                    "a world of " + std::to_string(size) + " ranks is impossible: it needs at least 1"};
  auto made = std::make_unique<world_table>();
  made->number = static_cast<std::uint32_t>(worlds_.size());
  made->size = size;
  made->unreleased.resize(static_cast<std::size_t>(size));
  made->last.resize(static_cast<std::size_t>(size));
  worlds_.push_back(std::move(made));
  return worlds_.back()->number;
}

sequencer::world_table* sequencer::find_world(std::uint32_t number) const noexcept {
  return number < worlds_.size() ? worlds_[number].get() : nullptr;
}

lane_table& sequencer::lane_of(world_table& there, lane name) {
  const std::size_t index = name.index();
  if (index >= there.lanes.size()) there.lanes.resize(index + 1);
  if (!there.lanes[index]) there.lanes[index] = std::make_unique<lane_table>(there.number, name, there.size, memory_);
  return *there.lanes[index];
}

lane_table* sequencer::find_lane(std::uint32_t number, rank self, lane name) const noexcept {
  const world_table* there = find_world(number);
  if (there == nullptr || self.value() < 0 || self.value() >= there->size) return nullptr;
  return name.index() < there->lanes.size() ? there->lanes[name.index()].get() : nullptr;
}

error sequencer::objection(const sequencing_terms& asked) const {
  const world_table* there = find_world(asked.world);
  if (there == nullptr)
    return refuse(errc::invalid_argument, asked.rank,
                  "world " + std::to_string(asked.world) + " has not been opened: " + std::to_string(worlds_.size()) +
                      " have been");
  if (there->closed) {
    error why = there->closed;
    if (!why.rank) why.rank = asked.rank; // else it names the rank for which the world was closed
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
                      " belongs to another client, which asked there first: use another lane");
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
                      " wait for its peers, and the limit is " + std::to_string(limits_.lead) +
                      " (limits.lead): ask again when one of them has been answered");
  const lane_queue* const queue = at != nullptr ? &at->queues[self] : nullptr;
  if (queue != nullptr && queue->extent() >= limits_.lead)
    return refuse(errc::busy, asked.rank,
                  std::to_string(queue->extent()) + " requests of rank " + to_string(asked.rank) + " in " +
                      name_lane(asked.lane) +
                      " wait or were cancelled before its peers reached them, and the limit is " +
                      std::to_string(limits_.lead) + " (limits.lead): ask again later, or use another lane");
  return {};
}

void sequencer::ask(std::unique_ptr<sequenced> one, sequencing_effects& effects) {
  const sequencing_terms& asked = one->terms();
  error refusal = objection(asked);
  const operation& what = one->what();
  const operation_reach by = reach_of(what);
  if (!refusal && by == operation_reach::peers) refusal = check_peers(what, asked.rank, find_world(asked.world)->size);
  if (!refusal && !find_world(asked.world)->left.empty())
    refusal = absence_objection(what, asked.rank, *find_world(asked.world));
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
    case operation_reach::all_ranks: join_match(at, self, signed_as, std::move(one), effects); break;
    case operation_reach::peers: join_exchange(at, self, std::move(one), effects); break;
    case operation_reach::itself: join_nobody(at, self, std::move(one)); break;
  }
  settle(effects);
}

error sequencer::absence_objection(const operation& what, rank self, const world_table& there) {
  const auto check = [&](rank peer) -> error {
    const auto found = there.left.find(peer);
    if (found == there.left.end()) return {};
    error why = found->second;
    why.rank = self;
    return why;
  };
  if (error failure = check(self)) return failure;
  return reach_of(what) == operation_reach::all_ranks ? check(there.first_left) : check_peers(what, check);
}

bool sequencer::enter(lane_table& at, int self, std::unique_ptr<sequenced> one, operation_match* where) {
  lane_queue& queue = at.queues[static_cast<std::size_t>(self)];
  const bool first = queue.empty();
  queue.push({one.get(), where});
  (void)one.release(); // NOLINT(bugprone-unused-return-value): the lane owns it
  ++worlds_[at.world]->unreleased[static_cast<std::size_t>(self)];
  ++waiting_;
  return first;
}

void sequencer::join_nobody(lane_table& at, int self, std::unique_ptr<sequenced> one) {
  if (enter(at, self, std::move(one), nullptr)) come_to_head(at, self);
}

void sequencer::join_match(lane_table& at, int self, const compact_signature& what, std::unique_ptr<sequenced> one,
                           sequencing_effects& effects) {
  lane_queue& queue = at.queues[static_cast<std::size_t>(self)];
  collective_match& joined = at.match_at(queue.collectives++, matches_);
  if (joined.withdrawn) {
    queue.push_refused();
    error why = joined.withdrawn->common ? joined.withdrawn->common
                                         : refuse(errc::cancelled, rank{self}, joined.withdrawn->text);
    why.rank = rank{self};
    effects.refused.push_back({std::move(one), std::move(why), joined.withdrawn->absence});
    ++queue.withdrawn;
    if (++joined.come_by == at.queues.size()) at.forget_withdrawn(joined, matches_);
    return;
  }
  if (joined.oldest == time_point::max()) {
    joined.agreed = what;
    joined.differs = !is_decided_by_compact(what);
  } else if (!(joined.agreed == what)) {
    joined.differs = true;
  }
  if (one->terms().objection) joined.differs = true;
  joined.has_agree = joined.has_agree || is_agree(what);
  joined.oldest = std::min(joined.oldest, one->terms().asked);
  if (enter(at, self, std::move(one), &joined)) come_to_head(at, self);
}

void sequencer::join_exchange(lane_table& at, int self, std::unique_ptr<sequenced> one, sequencing_effects& effects) {
  exchange& joining = *exchanges_.take();
  joining.over = joining.straggling_reported = false;
  joining.differs = one->terms().objection != nullptr;
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
    // The parts join in the given order: parts with equal tags match in that order, and each tag is a route of its own.
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

std::shared_ptr<const withdrawal> sequencer::join_route(lane_table& at, exchange& joining, const operation& part) {
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

void sequencer::note_due(lane_table& at, const sequencing_terms& asked) noexcept {
  time_point first = asked.deadline;
  if (limits_.straggling > nanoseconds{0}) first = std::min(first, later(asked.asked, limits_.straggling));
  if (first >= at.due) return;
  at.due = first;
  due_ = std::min(due_, first);
}

void sequencer::expire(time_point now, sequencing_effects& effects) {
  if (now < due_) return;
  expired_.clear();
  straggling_.clear();
  due_ = time_point::max();
  for (const auto& there : worlds_)
    for (const auto& at : there->lanes) {
      if (!at) continue;
      if (at->due <= now) scan(*at, now, expired_, straggling_);
      due_ = std::min(due_, at->due);
    }
  for (const place& one : expired_) {
    lane_queue& queue = one.at->queues[static_cast<std::size_t>(one.self)];
    if (queue.at(one.position).one == nullptr) continue; // refused with an earlier one
    auto report = report_on(one, now);
    const std::string text = "rank " + std::to_string(one.self) + " gave up after " + describe(report->waited);
    error own{.code = errc::deadline_exceeded,
              .text = describe(*report) + "; it was not launched: ask again later, or give more time"};
    take_out(one,
             {.cause = std::make_shared<withdrawal>(withdrawal{text + " on " + describe(*report), report}),
              .own = std::move(own),
              .first = queue.at(one.position).one,
              .now = now},
             effects);
  }
  settle(effects);
  for (const place& one : straggling_) {
    lane_queue& queue = one.at->queues[static_cast<std::size_t>(one.self)];
    if (queue.at(one.position).one == nullptr) continue; // refused with one that has expired
    effects.straggling.push_back(report_on(one, now));
  }
}

void sequencer::scan(lane_table& at, time_point now, std::vector<place>& expired,
                     std::vector<place>& straggling) const {
  at.due = time_point::max();
  for (std::size_t self = 0; self < at.queues.size(); ++self) {
    lane_queue& queue = at.queues[self];
    for (std::uint64_t i = queue.head(); i != queue.next(); ++i) {
      const lane_slot& slot = queue.at(i);
      if (slot.one == nullptr) continue;
      const place here{&at, static_cast<int>(self), i};
      if (slot.one->terms().deadline <= now)
        expired.push_back(here);
      else
        at.due = std::min(at.due, slot.one->terms().deadline);
      if (slot.where == nullptr || limits_.straggling <= nanoseconds{0}) continue;
      operation_match& where = slot.where->kind == operation_match::form::exchange
                                   ? static_cast<exchange*>(slot.where)->root()
                                   : *slot.where;
      if (where.straggling_reported) continue;
      const time_point told = later(where.oldest, limits_.straggling);
      if (told > now) {
        at.due = std::min(at.due, told);
        continue;
      }
      where.straggling_reported = true;
      straggling.push_back(here);
    }
  }
}

std::shared_ptr<absence_report> sequencer::report_on(const place& which, time_point now) const {
  lane_table& at = *which.at;
  const lane_slot& slot = at.queues[static_cast<std::size_t>(which.self)].at(which.position);
  const world_table& there = *worlds_[at.world];
  auto made = std::make_shared<absence_report>();
  made->world = there.number;
  made->what = describe(*slot.one);
  made->lane = at.name;
  made->waited = now - slot.one->terms().asked;
  for (int r = 0; r < there.size; ++r) {
    absence_report::standing one{.rank = rank{r}};
    const mark& last = there.last[static_cast<std::size_t>(r)];
    if (last.asked) one.last_asked = operation_mark{describe(last.what), last.lane, last.position};
    made->ranks.push_back(std::move(one));
  }
  if (slot.where == nullptr) {
    auto& self = made->ranks[static_cast<std::size_t>(which.self)];
    self.participates = self.asked = true;
  } else if (slot.where->kind == operation_match::form::collective_match) {
    const std::uint64_t index = static_cast<const collective_match*>(slot.where)->index;
    for (auto& one : made->ranks) {
      one.participates = true;
      one.asked = at.queues[static_cast<std::size_t>(one.rank.value())].collectives > index;
    }
  } else {
    exchange* const root = &static_cast<exchange*>(slot.where)->root();
    std::vector<int> absent;
    exchange* one = root;
    do {
      auto& member = made->ranks[static_cast<std::size_t>(one->self)];
      member.participates = member.asked = true;
      for (const transfer_end* end = one->ends; end != nullptr; end = end->sibling)
        if (end->partner == nullptr) absent.push_back(end->is_send ? end->destination : end->source);
      one = one->next;
    } while (one != root);
    for (const int r : absent) {
      made->ranks[static_cast<std::size_t>(r)].participates = true;
      made->ranks[static_cast<std::size_t>(r)].asked = false;
    }
  }
  return made;
}

void sequencer::come_to_head(lane_table& at, int self) {
  operation_match* const where = at.queues[static_cast<std::size_t>(self)].front().where;
  if (where == nullptr) {
    ready_.push_back({&at, self, nullptr});
  } else if (where->kind == operation_match::form::collective_match) {
    if (++where->heads == at.queues.size()) ready_.push_back({&at, self, where});
  } else {
    exchange& root = static_cast<exchange*>(where)->root();
    ++root.heads;
    try_exchange(root);
  }
}

void sequencer::complete(exchange& root) {
  collect_members(root);
  root.ranks = 0;
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (i == 0 || members_[i]->self != members_[i - 1]->self) ++root.ranks;
  try_exchange(root);
}

void sequencer::try_exchange(exchange& root) {
  if (root.over || root.heads != root.ranks || !is_in_front(root)) return;
  ready_.push_back({root.where, root.self, &root});
}

bool sequencer::is_in_front(exchange& root) const {
  if (root.heads == root.size) return true;
  // A rank may have requested several exchanges of the closure in sequence. Then no other request may be between them.
  std::size_t in_front = 0;
  for (exchange* one = &root;;) {
    lane_queue& queue = one->where->queues[static_cast<std::size_t>(one->self)];
    if (queue.head() == one->position)
      for (std::uint64_t i = queue.head(); i != queue.next(); ++i) {
        const lane_slot& slot = queue.at(i);
        if (slot.one == nullptr) continue;
        if (slot.where == nullptr || slot.where->kind != operation_match::form::exchange ||
            &static_cast<exchange*>(slot.where)->root() != &root)
          break;
        ++in_front;
      }
    one = one->next;
    if (one == &root) return in_front == root.size;
  }
}

void sequencer::settle(sequencing_effects& effects) {
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    const candidate next = ready_[i];
    if (next.what == nullptr) {
      lane_queue& queue = next.at->queues[static_cast<std::size_t>(next.self)];
      // The candidate may have been withdrawn, and another request may be at the head.
      if (queue.empty() || queue.front().where != nullptr) continue;
      auto alone = remove(*next.at, next.self, queue.head());
      if (const auto why = alone->terms().objection) {
        effects.refused.push_back({std::move(alone), *why});
        continue;
      }
      effects.released.push_back(std::move(alone));
      effects.ends.push_back(effects.released.size());
    } else if (!next.what->over) {
      if (next.what->kind == operation_match::form::collective_match)
        release(static_cast<collective_match&>(*next.what), effects);
      else
        release(static_cast<exchange&>(*next.what), effects);
    }
  }
  ready_.clear();
}

std::unique_ptr<sequenced> sequencer::remove(lane_table& at, int self, std::uint64_t position) {
  lane_queue& queue = at.queues[static_cast<std::size_t>(self)];
  std::unique_ptr<sequenced> one{std::exchange(queue.at(position).one, nullptr)};
  one->terms_.position = position; // reports the position to a client that gave none
  --worlds_[at.world]->unreleased[static_cast<std::size_t>(self)];
  --waiting_;
  if (position == queue.head()) {
    queue.skip_empty();
    if (!queue.empty()) come_to_head(at, self);
  } else if (operation_match* const first = queue.front().where;
             first != nullptr && first->kind == operation_match::form::exchange) {
    try_exchange(static_cast<exchange*>(first)->root()); // the removed request may have been in its way
  }
  return one;
}

void sequencer::release(collective_match& one, sequencing_effects& effects) {
  lane_table& at = *one.where;
  one.over = true;
  const error refusal = one.differs ? disagreement(one) : error{};
  constexpr std::size_t ahead = 8;
  for (std::size_t r = 0; r < at.queues.size(); ++r) {
    if (r + ahead < at.queues.size()) at.queues[r + ahead].fetch_front();
    auto joined = remove(at, static_cast<int>(r), at.queues[r].head());
    if (!refusal) {
      effects.released.push_back(std::move(joined));
      continue;
    }
    effects.refused.push_back({std::move(joined), refusal});
    if (!refusal.rank) effects.refused.back().why.rank = rank{static_cast<int>(r)};
  }
  if (!refusal) effects.ends.push_back(effects.released.size());
  at.forget(one, matches_);
}

void sequencer::release(exchange& root, sequencing_effects& effects) {
  collect_members(root);
  const error refusal = root.differs ? disagreement(static_cast<int>(root.where->queues.size())) : error{};
  for (exchange* one : members_) one->over = true;
  for (exchange* one : members_) {
    auto joined = remove(*one->where, one->self, one->position);
    if (!refusal) {
      effects.released.push_back(std::move(joined));
      continue;
    }
    effects.refused.push_back({std::move(joined), refusal});
    if (!refusal.rank) effects.refused.back().why.rank = rank{one->self};
  }
  if (!refusal) effects.ends.push_back(effects.released.size());
  for (exchange* one : members_) drop(one);
}

void sequencer::collect_members(exchange& root) {
  members_.clear();
  exchange* one = &root;
  do {
    members_.push_back(one);
    one = one->next;
  } while (one != &root);
  std::ranges::sort(members_, {}, [](const exchange* it) { return std::tuple{it->self, it->position}; });
}

error sequencer::disagreement(const collective_match& one) const {
  for (lane_queue& queue : one.where->queues)
    if (const auto& why = queue.front().one->terms().objection) return *why;
  std::vector<std::vector<signature>> ranks;
  ranks.reserve(one.where->queues.size());
  for (lane_queue& queue : one.where->queues) ranks.push_back(signatures_of(queue.front().one->what()));
  return check_agreement(ranks);
}

error sequencer::disagreement(int world_size) const {
  for (const exchange* one : members_)
    if (const auto& why =
            one->where->queues[static_cast<std::size_t>(one->self)].at(one->position).one->terms().objection)
      return *why;
  std::vector<std::vector<signature>> ranks(static_cast<std::size_t>(world_size));
  for (const exchange* one : members_) {
    const auto self = static_cast<std::size_t>(one->self);
    for (signature& part : signatures_of(one->where->queues[self].at(one->position).one->what()))
      ranks[self].push_back(std::move(part));
  }
  return check_agreement(ranks);
}

void sequencer::drop(exchange* one) noexcept {
  one->over = true;
  for (transfer_end* end = std::exchange(one->ends, nullptr); end != nullptr;) {
    transfer_end* const next = end->sibling;
    if (end->owner != nullptr) ends_.put_back(end); // an end without an owner waits on its route
    end = next;
  }
  exchanges_.put_back(one);
}

namespace {

std::string name_request(const sequenced& one) {
  return describe(one) + " in lane " + one.terms().lane.name();
}

} // namespace

void sequencer::close_world(std::uint32_t world, const error& why, sequencing_effects& effects) {
  world_table* const there = find_world(world);
  if (there == nullptr || there->closed) return;
  there->closed = why;
  there->closed.effect = effect::rejected;
  for (const auto& at : there->lanes)
    if (at) clear(*at, there->closed, effects);
  there->lanes.clear();
}

void sequencer::clear(lane_table& at, const error& why, sequencing_effects& effects) {
  at.routes.visit([&](transfer_end& end) {
    if (end.owner != nullptr) return;
    end.withdrawn.reset();
    ends_.put_back(&end);
  });
  for (std::size_t self = 0; self < at.queues.size(); ++self) {
    lane_queue& queue = at.queues[self];
    for (std::uint64_t i = queue.head(); i != queue.next(); ++i) {
      lane_slot& slot = queue.at(i);
      if (slot.one == nullptr) continue;
      if (slot.where != nullptr && slot.where->kind == operation_match::form::exchange)
        drop(static_cast<exchange*>(slot.where));
      effects.refused.push_back({std::unique_ptr<sequenced>{std::exchange(slot.one, nullptr)}, why});
      if (error& told = effects.refused.back().why; !told.rank) told.rank = rank{static_cast<int>(self)};
      --worlds_[at.world]->unreleased[self];
      --waiting_;
    }
  }
  at.forget_all(matches_);
}

void sequencer::retire(std::uint32_t world, lane where, const error& why, sequencing_effects& effects) {
  lane_table* const at = find_lane(world, rank{0}, where);
  if (at == nullptr) return;
  error told = why;
  told.effect = effect::rejected;
  clear(*at, told, effects);
  worlds_[world]->lanes[where.index()] = nullptr;
}

bool sequencer::cancel(std::uint32_t world, rank self, lane where, std::uint64_t position,
                       sequencing_effects& effects) {
  lane_table* const at = find_lane(world, self, where);
  if (at == nullptr) return false;
  lane_queue& queue = at->queues[static_cast<std::size_t>(self.value())];
  if (position < queue.head() || position >= queue.next() || queue.at(position).one == nullptr) return false;
  const sequenced& one = *queue.at(position).one;
  const std::string what = name_request(one);
  verdict why{.cause = std::make_shared<withdrawal>(withdrawal{"rank " + to_string(self) + " cancelled " + what}),
              .own =
                  error{.code = errc::cancelled, .text = what + " was cancelled before it was launched", .rank = self},
              .first = &one};
  take_out({at, self.value(), position}, why, effects);
  settle(effects);
  return true;
}

void sequencer::withdraw(std::uint32_t world, rank self, std::uint64_t client, const error& why,
                         sequencing_effects& effects) {
  const world_table* there = find_world(world);
  if (there == nullptr || client == 0 || self.value() < 0 || self.value() >= there->size) return;
  error own = why;
  own.effect = effect::rejected;
  own.rank = self;
  for (const auto& at : there->lanes) {
    if (!at) continue;
    lane_queue& queue = at->queues[static_cast<std::size_t>(self.value())];
    if (queue.owner != client) continue;
    queue.owner = 0;
    const std::uint64_t end = queue.next();
    for (std::uint64_t i = queue.head(); i != end; ++i) {
      const sequenced* one = queue.at(i).one; // null if refused with an earlier one
      if (one == nullptr || one->terms().client != client) continue;
      auto cause = std::make_shared<withdrawal>(
          withdrawal{"rank " + to_string(self) + " withdrew " + name_request(*one) + ": " + why.text});
      take_out({at.get(), self.value(), i},
               {.cause = std::move(cause), .own = own, .first = one, .self = self, .client = client}, effects);
    }
  }
  // Settled only after the loop, because the request behind a withdrawn one may be another request of the client.
  settle(effects);
}

bool sequencer::needs(const lane_slot& slot, int owner, int self) {
  if (slot.where == nullptr) return owner == self;
  if (slot.where->kind == operation_match::form::collective_match) return true;
  exchange* const root = &static_cast<exchange*>(slot.where)->root();
  exchange* one = root;
  do {
    if (one->self == self) return true;
    for (const transfer_end* end = one->ends; end != nullptr; end = end->sibling)
      if (end->partner == nullptr && (end->is_send ? end->destination : end->source) == self) return true;
    one = one->next;
  } while (one != root);
  return false;
}

void sequencer::leave(std::uint32_t world, rank self, const error& why, sequencing_effects& effects) {
  world_table* const there = find_world(world);
  if (there == nullptr || there->closed || self.value() < 0 || self.value() >= there->size) return;
  error told = why;
  told.effect = effect::rejected;
  if (!there->left.emplace(self, told).second) return;
  if (there->left.size() == 1) there->first_left = self;
  const verdict all{.cause = std::make_shared<withdrawal>(withdrawal{told.text}),
                    .own = told,
                    .now = time_point::max()}; // selects all requests, so all get the same error
  for (const auto& at : there->lanes) {
    if (!at) continue;
    for (std::size_t r = 0; r < at->queues.size(); ++r) {
      lane_queue& queue = at->queues[r];
      const std::uint64_t end = queue.next();
      for (std::uint64_t i = queue.head(); i != end; ++i) {
        const lane_slot& slot = queue.at(i); // empty if refused with an earlier one
        if (slot.one != nullptr && needs(slot, static_cast<int>(r), self.value()))
          take_out({at.get(), static_cast<int>(r), i}, all, effects);
      }
    }
  }
  settle(effects);
}

void sequencer::take_out(const place& which, const verdict& why, sequencing_effects& effects) {
  operation_match* const where = which.at->queues[static_cast<std::size_t>(which.self)].at(which.position).where;
  if (where == nullptr)
    effects.refused.push_back({remove(*which.at, which.self, which.position), why.own, why.cause->absence});
  else if (where->kind == operation_match::form::collective_match)
    take_out(static_cast<collective_match&>(*where), why, effects);
  else
    take_out(static_cast<exchange*>(where)->root(), why, effects);
}

namespace {

/// Returns the error for \p one when its operation is withdrawn.
template <class Verdict>
error refusal_for(const sequenced& one, const Verdict& why) {
  const sequencing_terms& asked = one.terms();
  const bool withdrawn = &one == why.first ||
                         (why.client != 0 && asked.client == why.client && asked.rank == why.self) ||
                         asked.deadline <= why.now;
  error made = withdrawn ? why.own : error{.code = errc::cancelled, .text = why.cause->text};
  made.rank = asked.rank;
  return made;
}

} // namespace

void sequencer::take_out(collective_match& one, const verdict& why, sequencing_effects& effects) {
  lane_table& at = *one.where;
  one.over = true;
  one.withdrawn = why.cause;
  if (one.has_agree) { // no rank may learn of another reason than its peers
    auto common = std::make_shared<withdrawal>(*why.cause);
    common->common = why.own ? why.own : error{.code = errc::cancelled, .text = why.cause->text};
    one.withdrawn = std::move(common);
  }
  one.come_by = at.come_to(one);
  for (std::size_t r = 0; r < at.queues.size(); ++r) {
    lane_queue& queue = at.queues[r];
    if (queue.collectives <= one.index) continue;
    ++queue.withdrawn;
    std::uint64_t position = queue.head();
    while (queue.at(position).one == nullptr || queue.at(position).where != &one) ++position;
    error told = one.withdrawn->common ? one.withdrawn->common : refusal_for(*queue.at(position).one, why);
    told.rank = rank{static_cast<int>(r)};
    effects.refused.push_back({remove(at, static_cast<int>(r), position), std::move(told), why.cause->absence});
  }
  if (one.come_by == at.queues.size()) at.forget_withdrawn(one, matches_);
}

void sequencer::take_out(exchange& root, const verdict& why, sequencing_effects& effects) {
  collect_members(root);
  for (exchange* one : members_) {
    const auto self = static_cast<std::size_t>(one->self);
    error told = refusal_for(*one->where->queues[self].at(one->position).one, why);
    effects.refused.push_back({remove(*one->where, one->self, one->position), std::move(told), why.cause->absence});
    for (transfer_end* end = one->ends; end != nullptr; end = end->sibling)
      if (end->partner == nullptr) { // its other half will be informed
        end->owner = nullptr;
        end->withdrawn = why.cause;
        ++one->where->queues[self].withdrawn;
      }
  }
  for (exchange* one : members_) drop(one);
}

bool sequencer::can_hand_over(std::uint32_t world) const {
  const world_table* const there = find_world(world);
  if (there == nullptr || there->closed) return false;
  const auto has_no_gap = [](lane_queue& one) {
    for (std::uint64_t i = one.head(); i != one.next(); ++i)
      if (one.at(i).one == nullptr) return false;
    return one.withdrawn == 0;
  };
  return std::ranges::all_of(there->lanes,
                             [&](const auto& at) { return !at || std::ranges::all_of(at->queues, has_no_gap); });
}

std::vector<sequencer::lane_position> sequencer::positions(std::uint32_t world, rank self) const {
  std::vector<lane_position> all;
  const world_table* const there = find_world(world);
  if (there == nullptr || self.value() < 0 || self.value() >= there->size) return all;
  for (const auto& at : there->lanes)
    if (at) all.push_back({at->name, at->queues[static_cast<std::size_t>(self.value())].head()});
  return all;
}

void sequencer::continue_at(std::uint32_t world, rank self, std::span<const lane_position> positions) {
  for (const lane_position& one : positions)
    lane_of(*worlds_[world], one.lane).queues[static_cast<std::size_t>(self.value())].begin_at(one.position);
}

} // namespace troupe
