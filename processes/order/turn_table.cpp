#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/progress/absence_report.hpp>
#include <troupe/processes/order/turn_table.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

std::size_t index(rank one) {
  return static_cast<std::size_t>(one.value());
}

/// Returns text for a refusal that names the turn, e.g. "the split into 'front', 'back'".
std::string describe(const turn_terms& one) {
  if (one.capture_limit != nanoseconds{0})
    return one.name.starts_with(unnamed_plan) ? "the capture of unnamed plan " + one.name.substr(unnamed_plan.size())
                                              : "the capture of plan '" + one.name + "'";
  if (one.split.empty()) return one.name;
  constexpr std::size_t most_named = 8;
  std::string text = one.name + " into ";
  for (std::size_t i = 0; i < std::min(one.split.size(), most_named); ++i)
    text += (i == 0 ? "'" : ", '") + one.split[i].name + "'";
  if (one.split.size() > most_named) text += " and " + std::to_string(one.split.size() - most_named) + " more";
  return text;
}

} // namespace

void turn_table::open(int world_size, std::size_t most) {
  const auto size = static_cast<std::size_t>(world_size);
  world_size_ = world_size;
  most_ = most;
  asked_.assign(size, 0);
  pending_.assign(size, 0);
  turns_.clear();
  granted_ = 0;
  captures_.clear();
  due_ = time_point::max();
  closed_ = {};
}

void turn_table::close(const error& why, answers& out) {
  if (closed_) return;
  closed_ = why;
  for (auto& [key, one] : turns_)
    for (std::size_t r = 0; r < one.ranks.size(); ++r)
      for (const pending_turn& waiting : one.ranks[r])
        out.push_back({.to = rank{static_cast<int>(r)}, .number = waiting.number, .why = why});
  turns_.clear();
  for (auto& [place, one] : captures_) {
    one.all.fail(why);
    static_cast<void>(settle(place, one, out));
  }
  captures_.clear();
  due_ = time_point::max();
}

std::string turn_table::key_of(const turn_terms& asked) {
  if (asked.capture_limit != nanoseconds{0}) return "capture " + asked.name;
  return "turn " + asked.name + '\0' + (asked.split.empty() ? std::string{} : encode_groups(asked.split));
}

void turn_table::ask(rank from, turn_terms asked, time_point now, answers& out) {
  const std::uint64_t number = ++asked_[index(from)];
  if (closed_) return out.push_back({.to = from, .number = number, .why = closed_});
  if (pending_[index(from)] >= most_) {
    out.push_back({.to = from,
                   .number = number,
                   .why = {.code = errc::busy,
                           .text = std::to_string(most_) + " captures, splits and registrations of rank " +
                                   to_string(from) + " wait for its peers, which is the limit (limits.lead)"}});
    return;
  }
  ++pending_[index(from)];
  const time_point deadline = later(now, asked.deadline);
  const nanoseconds capture_limit = asked.capture_limit;
  const auto place = turns_.try_emplace(key_of(asked)).first;
  named_turn& mine = place->second;
  mine.ranks.resize(static_cast<std::size_t>(world_size_));
  mine.ranks[index(from)].push_back({number, deadline, capture_limit, std::move(asked.told)});
  mine.of = std::move(asked);
  due_ = std::min(due_, deadline);
  if (std::ranges::any_of(mine.ranks, [](const auto& one) { return one.empty(); })) return;
  grant(mine, now, out);
  if (std::ranges::all_of(mine.ranks, [](const auto& one) { return one.empty(); })) turns_.erase(place);
}

std::vector<told_commits> turn_table::commits_in(const named_turn& ready) {
  const std::size_t share = value_share(ready.of.split, ready.ranks.size());
  std::vector<told_commits> all;
  for (std::size_t i = 0; i < ready.of.split.size(); ++i) {
    std::vector<told_commits> reports;
    for (const rank one : ready.of.split[i].members) {
      const auto& told = ready.ranks[index(one)].front().told;
      if (!told.empty()) reports.push_back(told[i]);
    }
    bound_values(all.emplace_back(common_commits(reports)).lanes, share);
  }
  return all;
}

void turn_table::grant(named_turn& ready, time_point now, answers& out) {
  ++granted_;
  nanoseconds limit{0};
  const auto split = ready.of.split.empty() ? nullptr : std::make_shared<const std::vector<rank_group>>(ready.of.split);
  const auto told = split ? std::make_shared<const std::vector<told_commits>>(commits_in(ready)) : nullptr;
  for (std::size_t r = 0; r < ready.ranks.size(); ++r) {
    const pending_turn one = std::move(ready.ranks[r].front());
    ready.ranks[r].pop_front();
    --pending_[r];
    limit = limit == nanoseconds{0} ? one.capture_limit : std::min(limit, one.capture_limit);
    out.push_back({.to = rank{static_cast<int>(r)}, .number = one.number, .split = split, .told = told});
  }
  if (limit == nanoseconds{0}) return;
  const time_point deadline = later(now, limit);
  captures_.emplace(granted_,
                    open_capture{capture_comparison{world_size_}, std::vector<member>(ready.ranks.size()), deadline});
  due_ = std::min(due_, deadline);
}

error turn_table::take(rank from, request_record& record, answers& out) {
  const auto found = captures_.find(record.place);
  if (found == captures_.end()) {
    if (record.place >= 1 && record.place <= granted_) return {};
    return {.code = errc::internal,
            .text = "rank " + to_string(from) + " launches in capture " + std::to_string(record.place) +
                    ", which has not begun",
            .rank = from};
  }
  open_capture& one = found->second;
  member& mine = one.ranks[index(from)];
  if (record.kind == request_record::form::capture_failure) {
    if (!record.why.rank) record.why.rank = from;
    one.all.fail(std::move(record.why));
  } else {
    if (mine.waits)
      return {.code = errc::internal,
              .text = "rank " + to_string(from) + " launches in a capture while it waits for its peers there",
              .rank = from};
    mine.waits = true;
    if (record.kind == request_record::form::capture_end) {
      one.all.end(from);
    } else {
      mine.launch = std::move(record.launch);
      one.all.offer(from, pointers_to(mine.launch), record.divisible, std::move(record.places));
    }
  }
  if (settle(record.place, one, out)) captures_.erase(found);
  return {};
}

bool turn_table::settle(std::uint64_t place, open_capture& one, answers& out) const {
  const error& failure = one.all.failure();
  for (std::size_t r = 0; r < one.ranks.size(); ++r) {
    const rank self{static_cast<int>(r)};
    if (!failure && !(one.ranks[r].waits && one.all.may_go(self))) continue;
    one.ranks[r].waits = false;
    out.push_back({.to = self,
                   .kind = turn_answer::form::capture,
                   .number = place,
                   .agreed = one.all.agreed(self),
                   .why = failure});
  }
  return failure || one.all.all_have_ended();
}

void turn_table::refuse_late(named_turn& one, time_point now, answers& out) {
  std::vector<rank> missing;
  for (std::size_t r = 0; r < one.ranks.size(); ++r)
    if (one.ranks[r].empty()) missing.emplace_back(static_cast<int>(r));
  const auto refusal = [&] {
    std::string text = describe(one.of) + " was not begun in time: " + name_ranks(missing) +
                       (missing.size() == 1 ? " has" : " have") + " not asked for it";
    for (const auto& [key, other] : turns_) // what the first missing rank waits for instead
      if (!missing.empty() && &other != &one && !other.ranks[index(missing.front())].empty()) {
        text += ", rank " + to_string(missing.front()) + " waits for " + describe(other.of);
        break;
      }
    return error{.code = errc::deadline_exceeded,
                 .text = std::move(text) + ". Every process of the world must ask for the same"};
  };
  for (std::size_t r = 0; r < one.ranks.size(); ++r)
    std::erase_if(one.ranks[r],
                  [&](const pending_turn& waiting) { // not only the first: a later one may be due sooner
                    if (waiting.deadline > now) return false;
                    --pending_[r];
                    out.push_back({.to = rank{static_cast<int>(r)}, .number = waiting.number, .why = refusal()});
                    return true;
                  });
}

void turn_table::expire(time_point now, answers& out) {
  if (now < due_) return;
  for (auto& named : turns_) refuse_late(named.second, now, out);
  std::erase_if(turns_, [](const auto& each) {
    return std::ranges::all_of(each.second.ranks, [](const auto& one) { return one.empty(); });
  });
  for (auto it = captures_.begin(); it != captures_.end();) {
    if (it->second.deadline <= now) it->second.all.expire();
    const bool over = it->second.all.failure() && settle(it->first, it->second, out);
    it = over ? captures_.erase(it) : std::next(it);
  }
  find_due();
}

void turn_table::find_due() {
  due_ = time_point::max();
  for (const auto& [name, one] : turns_)
    for (const auto& waiting : one.ranks)
      for (const pending_turn& turn : waiting) due_ = std::min(due_, turn.deadline);
  for (const auto& [place, one] : captures_) due_ = std::min(due_, one.deadline);
}

} // namespace troupe
