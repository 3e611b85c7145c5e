#include <troupe/collectives/backend/launch_parts.hpp>
#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/pipeline/plans/capture_comparison.hpp>

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe {

namespace {

/// Largest number of ranks or operations that a message names.
constexpr std::size_t most_listed = 8;

std::size_t index(rank one) {
  return static_cast<std::size_t>(one.value());
}

std::string describe_all(std::span<const operation* const> all) {
  std::string text = all.size() == 1 ? "" : std::to_string(all.size()) + " together: ";
  for (std::size_t i = 0; i < std::min(most_listed, all.size()); ++i) text += (i == 0 ? "" : "; ") + describe(*all[i]);
  return all.size() > most_listed ? text + "; …" : text;
}

} // namespace

capture_comparison::capture_comparison(int world_size) : members_(static_cast<std::size_t>(world_size)) {}

void capture_comparison::member::go_on() {
  if (at != stage::waiting || !collectives.empty() || unmet > 0) return;
  at = stage::running;
  ++launches;
}

void capture_comparison::offer(rank self, std::span<const operation* const> all, bool divisible,
                               std::vector<std::uint64_t> places) {
  launch_parts parts = parts_of_launch(all);
  if (parts.collectives.empty() && parts.transfers.empty()) return;
  member& mine = members_[index(self)];
  mine.at = stage::waiting;
  mine.asked = describe_all(all);
  mine.collectives = std::move(parts.collectives);
  mine.places = std::move(places);
  mine.places.resize(mine.collectives.size());
  mine.divisible = divisible;
  for (const operation* one : parts.transfers) bring(index(self), *one);
  compare_collectives();
  mine.go_on();
  find_standstill();
}

void capture_comparison::bring(std::size_t self, const operation& transfer) {
  signature mine = signatures_of(transfer).front();
  const std::size_t peer = index(mine.root);
  const bool sends = mine.is_send();
  member& me = members_[self];
  const std::size_t from = sends ? self : peer;
  const std::size_t to = sends ? peer : self;
  const transfer_key key{from, to, sends ? me.sent[peer]++ : me.received[peer]++};
  const auto met = unmatched_.find(key);
  if (met == unmatched_.end()) {
    ++me.unmet;
    unmatched_.emplace(key, unmatched_end{self, std::move(mine)});
    return;
  }
  const signature& theirs = met->second.what;
  const bool same = mine.count == theirs.count && mine.type == theirs.type && mine.tag == theirs.tag;
  if (!same || mine.is_send() == theirs.is_send())
    return fail({.code = errc::mismatch,
                 .text = "the ranks disagree: from rank " + std::to_string(from) + " to rank " + std::to_string(to) +
                         ", " + describe(sends ? mine : theirs) + " is matched with " +
                         describe(sends ? theirs : mine) +
                         ": use the same count, dtype and tag at both, in the same order"});
  member& other = members_[met->second.rank];
  --other.unmet;
  other.go_on();
  unmatched_.erase(met);
}

void capture_comparison::compare_collectives() {
  if (failure_ || std::ranges::any_of(members_, [](const member& one) { return one.collectives.empty(); })) return;
  std::size_t shortest = std::numeric_limits<std::size_t>::max();
  for (const member& one : members_)
    if (one.divisible) shortest = std::min(shortest, one.collectives.size());
  for (member& one : members_) {
    if (one.divisible) one.collectives.resize(shortest);
    one.agreed = one.collectives.size();
  }
  std::vector<std::vector<signature>> asked;
  for (const member& one : members_) {
    auto& mine = asked.emplace_back();
    for (const operation* each : one.collectives) mine.push_back(signatures_of(*each).front());
  }
  error why = check_agreement(asked);
  if (!why) why = compare_places();
  if (why) {
    why.text += " (at launch " + std::to_string(members_.front().launches) + " of the plan, from 0)";
    return fail(std::move(why));
  }
  for (member& one : members_) {
    one.collectives.clear();
    one.go_on();
  }
}

error capture_comparison::compare_places() const {
  const member& first = members_.front();
  for (std::size_t i = 0; i < first.collectives.size(); ++i)
    for (std::size_t r = 1; r < members_.size(); ++r)
      if (members_[r].places[i] != first.places[i])
        return different_places(describe(*first.collectives[i]), rank{0}, rank{static_cast<int>(r)});
  return {};
}

/// Fails the capture if no rank can continue and not all have ended.
void capture_comparison::find_standstill() {
  if (std::ranges::any_of(members_, [](const member& one) { return one.at == stage::running; })) return;
  if (all_have_ended()) return;
  fail({.code = errc::mismatch,
        .text = "the ranks disagree: " + describe_ranks() + ": let every rank launch the same in the same order"});
}

void capture_comparison::end(rank self) {
  members_[index(self)].at = stage::ended;
  find_standstill();
}

void capture_comparison::expire() {
  if (all_have_ended()) return;
  fail({.code = errc::deadline_exceeded,
        .text = "not all ranks reached the end of the capture before its deadline: " + describe_ranks()});
}

void capture_comparison::fail(error why) {
  if (!failure_) failure_ = std::move(why);
}

bool capture_comparison::may_go(rank self) const {
  const member& mine = members_[index(self)];
  return mine.at == stage::running || (mine.at == stage::ended && all_have_ended());
}

std::size_t capture_comparison::agreed(rank self) const {
  return members_[index(self)].agreed;
}

bool capture_comparison::all_have_ended() const {
  return std::ranges::all_of(members_, [](const member& one) { return one.at == stage::ended; });
}

std::string capture_comparison::describe_ranks() const {
  std::string text;
  for (std::size_t r = 0; r < std::min(most_listed, members_.size()); ++r) {
    const member& one = members_[r];
    text += (r == 0 ? "rank " : "; rank ") + std::to_string(r);
    switch (one.at) {
      case stage::running:
        text += " has launched " + std::to_string(one.launches) + " times and asks for nothing";
        break;
      case stage::waiting: text += " asks for " + one.asked; break;
      case stage::ended: text += " has ended after " + std::to_string(one.launches) + " launches"; break;
    }
  }
  return members_.size() > most_listed ? text + "; and " + std::to_string(members_.size() - most_listed) + " more"
                                       : text;
}

} // namespace troupe
