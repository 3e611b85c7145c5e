#include <troupe/collectives/operation/signature.hpp>
#include <troupe/collectives/order/sequencer_state.hpp>
#include <troupe/device/planted_bug.hpp>

#include <algorithm>
#include <tuple>
#include <utility>

namespace troupe {

void sequencer::state::come_to_head(lane_table& at, int self) {
  gathering* const where = at.queues[static_cast<std::size_t>(self)].front().where;
  if (where == nullptr) {
    ready_.push_back({&at, self, nullptr});
  } else if (where->kind == gathering::form::meeting) {
    if (++where->heads == at.queues.size()) ready_.push_back({&at, self, where});
  } else {
    exchange& root = static_cast<exchange*>(where)->root();
    ++root.heads;
    try_exchange(root);
  }
}

void sequencer::state::complete(exchange& root) {
  collect_members(root);
  root.ranks = 0;
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (i == 0 || members_[i]->self != members_[i - 1]->self) ++root.ranks;
  try_exchange(root);
}

void sequencer::state::try_exchange(exchange& root) {
  if (root.over || root.partnerless > 0 || root.heads != root.ranks || !is_in_front(root)) return;
  ready_.push_back({root.where, root.self, &root});
}

bool sequencer::state::is_in_front(exchange& root) const {
  if (root.heads == root.size) return true;
  // A rank may have asked for several exchanges of the closure in sequence. Then no other request may be between them.
  std::size_t in_front = 0;
  for (exchange* one = &root;;) {
    lane_queue& queue = one->where->queues[static_cast<std::size_t>(one->self)];
    if (queue.head() == one->position)
      for (std::uint64_t i = queue.head(); i != queue.next(); ++i) {
        const lane_slot& slot = queue.at(i);
        if (slot.one == nullptr) continue;
        if (slot.where == nullptr || slot.where->kind != gathering::form::exchange ||
            &static_cast<exchange*>(slot.where)->root() != &root)
          break;
        ++in_front;
      }
    one = one->next;
    if (one == &root) return in_front == root.size;
  }
}

void sequencer::state::hold(std::uint32_t world, lane where) {
  if (world_table* const there = find_world(world); there != nullptr && !there->closed)
    lane_of(*there, where).held = true;
}

void sequencer::state::resume(std::uint32_t world, lane where, sequencing_effects& effects) {
  lane_table* const at = find_lane(world, rank{0}, where);
  if (at == nullptr || !std::exchange(at->held, false)) return;
  // Operations that became ready while the lane was held may be gone, so they are searched again.
  for (std::size_t self = 0; self < at->queues.size(); ++self) {
    if (at->queues[self].empty()) continue;
    gathering* const first = at->queues[self].front().where;
    if (first != nullptr && first->kind == gathering::form::exchange)
      try_exchange(static_cast<exchange*>(first)->root());
    else if (first == nullptr || first->heads == at->queues.size())
      ready_.push_back({at, static_cast<int>(self), first});
  }
  settle(effects);
}

void sequencer::state::settle(sequencing_effects& effects) {
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    const candidate next = ready_[i];
    if (next.at->held) continue;
    if (next.what == nullptr) {
      lane_queue& queue = next.at->queues[static_cast<std::size_t>(next.self)];
      // The candidate may have been withdrawn, and another request may be at the head.
      if (queue.empty() || queue.front().where != nullptr) continue;
      effects.released.push_back(remove(*next.at, next.self, queue.head()));
      effects.ends.push_back(effects.released.size());
    } else if (!next.what->over) {
      if (next.what->kind == gathering::form::meeting)
        release(static_cast<meeting&>(*next.what), effects);
      else
        release(static_cast<exchange&>(*next.what), effects);
    }
  }
  ready_.clear();
}

std::unique_ptr<sequenced> sequencer::state::remove(lane_table& at, int self, std::uint64_t position) {
  lane_queue& queue = at.queues[static_cast<std::size_t>(self)];
  std::unique_ptr<sequenced> one{std::exchange(queue.at(position).one, nullptr)};
  one->terms_.position = position; // tells a client that gave no position
  --worlds_[at.world]->unreleased[static_cast<std::size_t>(self)];
  --waiting_;
  if (position == queue.head()) {
    queue.skip_empty();
    if (!queue.empty()) come_to_head(at, self);
  } else if (gathering* const first = queue.front().where;
             first != nullptr && first->kind == gathering::form::exchange) {
    try_exchange(static_cast<exchange*>(first)->root()); // it may have waited for the removed request
  }
  return one;
}

void sequencer::state::release(meeting& one, sequencing_effects& effects) {
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
    effects.refused.back().why.rank = rank{static_cast<int>(r)};
  }
  if (!refusal) effects.ends.push_back(effects.released.size());
  at.forget(one, meetings_);
}

void sequencer::state::release(exchange& root, sequencing_effects& effects) {
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
    effects.refused.back().why.rank = rank{one->self};
  }
  if (!refusal) effects.ends.push_back(effects.released.size());
  for (exchange* one : members_) drop(one);
}

void sequencer::state::collect_members(exchange& root) {
  members_.clear();
  exchange* one = &root;
  do {
    members_.push_back(one);
    one = one->next;
  } while (one != &root);
  std::ranges::sort(members_, {}, [](const exchange* it) { return std::tuple{it->self, it->position}; });
}

error sequencer::state::disagreement(const meeting& one) const {
  if (is_planted(planted_bug::unchecked_request)) return {};
  std::vector<std::vector<signature>> ranks;
  ranks.reserve(one.where->queues.size());
  for (lane_queue& queue : one.where->queues) ranks.push_back(signatures_of(queue.front().one->what()));
  return check_agreement(ranks);
}

error sequencer::state::disagreement(int world_size) const {
  std::vector<std::vector<signature>> ranks(static_cast<std::size_t>(world_size));
  for (const exchange* one : members_) {
    const auto self = static_cast<std::size_t>(one->self);
    for (signature& part : signatures_of(one->where->queues[self].at(one->position).one->what()))
      ranks[self].push_back(std::move(part));
  }
  return check_agreement(ranks);
}

void sequencer::state::drop(exchange* one) noexcept {
  one->over = true;
  for (transfer_end* end = std::exchange(one->ends, nullptr); end != nullptr;) {
    transfer_end* const next = end->sibling;
    if (end->owner != nullptr) ends_.put_back(end); // an end without an owner waits on its route
    end = next;
  }
  exchanges_.put_back(one);
}

} // namespace troupe
