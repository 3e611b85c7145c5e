#include <troupe/collectives/order/sequencer_state.hpp>
#include <troupe/device/planted_bug.hpp>

#include <algorithm>

namespace troupe {

void sequencer::state::note_due(lane_table& at, const sequencing_terms& asked) noexcept {
  if (is_planted(planted_bug::missed_deadline)) return;
  time_point first = asked.deadline;
  if (limits_.straggling > nanoseconds{0}) first = std::min(first, later(asked.asked, limits_.straggling));
  if (first >= at.due) return;
  at.due = first;
  due_ = std::min(due_, first);
}

void sequencer::state::expire(time_point now, sequencing_effects& effects) {
  if (waiting_ == 0 || now < due_) return;
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
    if (one.position < queue.head() || queue.at(one.position).one == nullptr) continue; // refused with an earlier one
    auto report = report_on(one, now);
    const std::string text = "rank " + std::to_string(one.self) + " gave up after " + describe(report->waited);
    error own{.code = errc::deadline_exceeded,
              .text = describe(*report) + "; it was not launched: ask again when they are there, or give more time"};
    take_out(one,
             {.cause = std::make_shared<withdrawal>(withdrawal{text + " on " + describe(*report), report}),
              .own = std::move(own),
              .first = queue.at(one.position).one,
              .now = now},
             effects);
  }
  settle(effects);
  for (const place& one : straggling_) {
    const lane_queue& queue = one.at->queues[static_cast<std::size_t>(one.self)];
    if (one.position < queue.head() ||
        one.at->queues[static_cast<std::size_t>(one.self)].at(one.position).one == nullptr)
      continue;
    effects.straggling.push_back(report_on(one, now));
  }
}

void sequencer::state::scan(lane_table& at, time_point now, std::vector<place>& expired,
                            std::vector<place>& straggling) {
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
      gathering& where =
          slot.where->kind == gathering::form::exchange ? static_cast<exchange*>(slot.where)->root() : *slot.where;
      if (where.straggling_told) continue;
      const time_point told = later(where.oldest, limits_.straggling);
      if (told > now) {
        at.due = std::min(at.due, told);
        continue;
      }
      where.straggling_told = true;
      straggling.push_back(here);
    }
  }
}

std::shared_ptr<absence_report> sequencer::state::report_on(const place& which, time_point now) const {
  lane_table& at = *which.at;
  const lane_slot& slot = at.queues[static_cast<std::size_t>(which.self)].at(which.position);
  const world_table& there = *worlds_[at.world];
  auto made = std::make_shared<absence_report>();
  made->world = there.number;
  made->what = describe(*slot.one);
  made->lane = at.name;
  made->waited = now - slot.one->terms().asked;
  made->held = at.held;
  for (int r = 0; r < there.size; ++r) {
    absence_report::standing one{.rank = rank{r}};
    const mark& last = there.last[static_cast<std::size_t>(r)];
    if (last.asked) one.last_asked = operation_mark{describe(last.what), last.lane, last.position};
    made->ranks.push_back(std::move(one));
  }
  if (slot.where == nullptr) {
    auto& self = made->ranks[static_cast<std::size_t>(which.self)];
    self.participates = self.asked = true;
  } else if (slot.where->kind == gathering::form::meeting) {
    const std::uint64_t index = static_cast<const meeting*>(slot.where)->index;
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

} // namespace troupe
