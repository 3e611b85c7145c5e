#include <troupe/collectives/order/sequencer_state.hpp>

namespace troupe {

namespace {

std::string name_request(const sequenced& one) {
  return describe(one) + " in lane " + one.terms().lane.name();
}

} // namespace

void sequencer::state::close_world(std::uint32_t world, const error& why, sequencing_effects& effects) {
  world_table* const there = find_world(world);
  if (there == nullptr || there->closed) return;
  there->closed = why;
  there->closed.effect = effect::rejected;
  for (const auto& at : there->lanes) {
    if (!at) continue;
    at->routes.visit([&](transfer_end& end) {
      if (end.owner != nullptr) return;
      end.withdrawn.reset();
      ends_.put_back(&end);
    });
    for (std::size_t self = 0; self < at->queues.size(); ++self) {
      lane_queue& queue = at->queues[self];
      for (std::uint64_t i = queue.head(); i != queue.next(); ++i) {
        lane_slot& slot = queue.at(i);
        if (slot.one == nullptr) continue;
        if (slot.where != nullptr && slot.where->kind == gathering::form::exchange)
          drop(static_cast<exchange*>(slot.where));
        effects.refused.push_back({std::unique_ptr<sequenced>{std::exchange(slot.one, nullptr)}, there->closed});
        effects.refused.back().why.rank = rank{static_cast<int>(self)};
        --waiting_;
      }
    }
    at->forget_all(meetings_);
  }
  there->lanes.clear();
}

bool sequencer::state::cancel(std::uint32_t world, rank self, lane where, std::uint64_t position,
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

void sequencer::state::withdraw(std::uint32_t world, rank self, std::uint64_t client, const error& why,
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
      if (i < queue.head()) continue; // skipped: refused with an earlier one
      const sequenced* one = queue.at(i).one;
      if (one == nullptr || one->terms().client != client) continue;
      auto cause = std::make_shared<withdrawal>(
          withdrawal{"rank " + to_string(self) + " withdrew " + name_request(*one) + ": " + why.text});
      take_out({at.get(), self.value(), i},
               {.cause = std::move(cause), .own = own, .first = one, .self = self, .client = client}, effects);
    }
  }
  // Only after the loop: the request behind one of the client's may be another of its requests.
  settle(effects);
}

void sequencer::state::take_out(const place& which, const verdict& why, sequencing_effects& effects) {
  gathering* const where = which.at->queues[static_cast<std::size_t>(which.self)].at(which.position).where;
  if (where == nullptr)
    effects.refused.push_back({remove(*which.at, which.self, which.position), why.own, why.cause->absence});
  else if (where->kind == gathering::form::meeting)
    take_out(static_cast<meeting&>(*where), why, effects);
  else
    take_out(static_cast<exchange*>(where)->root(), why, effects);
}

namespace {

/// Returns the error for \p one when its operation is withdrawn.
template <class Verdict>
error sentence(const sequenced& one, const Verdict& why) {
  const sequencing_terms& asked = one.terms();
  const bool withdrawn = &one == why.first ||
                         (why.client != 0 && asked.client == why.client && asked.rank == why.self) ||
                         asked.deadline <= why.now;
  error made = withdrawn ? why.own : error{.code = errc::cancelled, .text = why.cause->text};
  made.rank = asked.rank;
  return made;
}

} // namespace

void sequencer::state::take_out(meeting& one, const verdict& why, sequencing_effects& effects) {
  lane_table& at = *one.where;
  one.over = true;
  one.withdrawn = why.cause;
  one.come_by = at.come_to(one);
  for (std::size_t r = 0; r < at.queues.size(); ++r) {
    lane_queue& queue = at.queues[r];
    if (queue.collectives <= one.index) continue;
    ++queue.withdrawn;
    std::uint64_t position = queue.head();
    while (queue.at(position).one == nullptr || queue.at(position).where != &one) ++position;
    error told = sentence(*queue.at(position).one, why);
    effects.refused.push_back({remove(at, static_cast<int>(r), position), std::move(told), why.cause->absence});
  }
  if (one.come_by == at.queues.size()) at.forget_withdrawn(one, meetings_);
}

void sequencer::state::take_out(exchange& root, const verdict& why, sequencing_effects& effects) {
  collect_members(root);
  for (exchange* one : members_) one->over = true;
  for (exchange* one : members_) {
    const auto self = static_cast<std::size_t>(one->self);
    error told = sentence(*one->where->queues[self].at(one->position).one, why);
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

} // namespace troupe
