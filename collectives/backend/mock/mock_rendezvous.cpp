#include <troupe/collectives/backend/mock/mock_rendezvous.hpp>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace troupe {

namespace {

using id_bytes = std::array<std::byte, 128>;

struct registry {
  std::mutex mutex;
  std::map<id_bytes, std::weak_ptr<local_rendezvous>> places;
};

// Never destroyed: communicators held by static objects may outlive any static registry.
registry& the_registry() {
  static auto* const instance = new registry;
  return *instance;
}

/// Returns "rank 3", or "ranks 0, 1, 2 and 997 more".
std::string name_ranks(const std::vector<std::size_t>& ranks) {
  constexpr std::size_t most = 8;
  std::string names = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(most, ranks.size()); ++i)
    names += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > most) names += " and " + std::to_string(ranks.size() - most) + " more";
  return names;
}

/// Names which ranks requested what, in the order of the lowest rank of each request.
std::string name_disagreement(std::uint64_t ordinal, std::span<const mock_launch* const> launches) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> variants;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const auto variant = std::ranges::find(variants, launches[i]->text, [](const auto& one) { return one.first; });
    if (variant == variants.end())
      variants.emplace_back(launches[i]->text, std::vector{i});
    else
      variant->second.push_back(i);
  }
  std::string text = "ranks disagree about operation " + std::to_string(ordinal) + " of the communicator (from 0): ";
  for (const auto& [what, ranks] : variants) {
    if (&what != &variants.front().first) text += "; ";
    text += name_ranks(ranks) + " asked for " + what;
  }
  return text;
}

/// Returns "all_reduce of 4 f32, sum", or "3 together: all_reduce of 4 f32, sum; …".
std::string describe_all(std::span<const operation* const> all) {
  if (all.size() == 1) return describe(*all.front());
  constexpr std::size_t most = 4;
  std::string text = std::to_string(all.size()) + " together";
  for (std::size_t i = 0; i < std::min(most, all.size()); ++i) text += (i == 0 ? ": " : "; ") + describe(*all[i]);
  return all.size() > most ? text + "; …" : text;
}

error find_disagreement(std::span<const mock_launch* const> launches) {
  std::vector<std::vector<signature>> asked;
  for (const mock_launch* one : launches) {
    auto& mine = asked.emplace_back();
    for (const mock_call& call : one->collectives) mine.push_back(call.what);
  }
  return check_agreement(asked);
}

} // namespace

error aborted_error(rank who) {
  return {.code = errc::communicator_failed, .text = "the communicator was aborted", .rank = who};
}

error find_mismatch(std::uint64_t ordinal, std::span<const mock_launch* const> all) {
  error why = find_disagreement(all);
  if (!why) return {};
  why.code = errc::mismatch;
  if (std::ranges::any_of(all, [&](const mock_launch* one) { return one->text != all[0]->text; }))
    why.text = name_disagreement(ordinal, all);
  return why;
}

error find_mismatch(const mock_launch::transfer& sent, const mock_launch::transfer& received) {
  const signature& out = sent.call.what;
  const signature& in = received.call.what;
  if (out.count == in.count && out.type == in.type && out.tag == in.tag) return {};
  return {.code = errc::mismatch,
          .text = "ranks disagree: rank " + std::to_string(sent.from) + " asked for " + describe(out) + ", and rank " +
                  std::to_string(sent.to) + " for " + describe(in)};
}

void perform_all(std::span<const mock_launch* const> all) {
  for (std::size_t i = 0; i < all.front()->collectives.size(); ++i) {
    std::vector<const mock_call*> ranks;
    for (const mock_launch* one : all) ranks.push_back(&one->collectives[i]);
    perform(ranks);
  }
}

std::shared_ptr<local_rendezvous> local_rendezvous::find_or_make(const unique_id& id, int world_size) {
  registry& all = the_registry();
  std::shared_ptr<local_rendezvous> place; // outlives the lock, because its destructor takes the lock
  const std::lock_guard lock{all.mutex};
  std::weak_ptr<local_rendezvous>& entry = all.places[id.bytes];
  place = entry.lock();
  if (!place) entry = place = std::make_shared<local_rendezvous>(id, world_size);
  if (place->members_.size() != static_cast<std::size_t>(world_size))
    throw exception{errc::invalid_argument, "the unique id names a world of " + std::to_string(place->members_.size()) +
                                                " ranks, not of " + std::to_string(world_size)};
  return place;
}

local_rendezvous::local_rendezvous(const unique_id& id, int world_size)
  : id_{id}, members_(static_cast<std::size_t>(world_size)) {}

local_rendezvous::~local_rendezvous() {
  registry& all = the_registry();
  const std::lock_guard lock{all.mutex};
  const auto entry = all.places.find(id_.bytes);
  // A new rendezvous may have replaced the entry.
  if (entry != all.places.end() && entry->second.expired()) all.places.erase(entry);
}

void local_rendezvous::join(rank self, std::shared_ptr<mock_waker> engine) {
  std::unique_lock lock{mutex_};
  member& me = member_of(self);
  if (me.aborted) throw exception{aborted_error(self)};
  if (me.engine)
    throw exception{errc::invalid_argument, "rank " + to_string(self) + " has already joined this formation"};
  me.engine = std::move(engine);
  // A peer that joined and was aborted counts as absent. As with a network, this then waits until abort().
  formed_ = std::ranges::all_of(members_, [](const member& one) { return one.engine && !one.aborted; });
  if (formed_) joined_changed_.notify_all();
  joined_changed_.wait(lock, [&] { return formed_ || me.aborted; });
  if (me.aborted) throw exception{aborted_error(self)};
}

progress local_rendezvous::meet(mock_launch& mine) {
  const std::lock_guard lock{mutex_};
  if (member_of(mine.self).aborted) return progress::reached; // completion does not mean success
  if (!mine.arrived) arrive(mine);
  return mine.pending == 0 ? progress::reached : progress::pending;
}

void local_rendezvous::arrive(mock_launch& mine) {
  mine.arrived = true;
  mine.pending = mine.transfers.size() + (mine.ordinal ? 1 : 0);
  for (mock_launch::transfer& one : mine.transfers) {
    const transfer_key key{{one.from, one.to}, one.ordinal};
    transfer_match& both = matches_[key];
    const bool sends = one.call.what.is_send();
    (sends ? both.sender : both.receiver) = &mine;
    (sends ? both.sent : both.received) = &one;
    if (both.sender != nullptr && both.receiver != nullptr && !mismatch_) {
      conclude(both);
      matches_.erase(key);
    }
  }
  if (!mine.ordinal) return;
  arrivals& here = arrivals_[*mine.ordinal];
  here.resize(members_.size());
  here[static_cast<std::size_t>(mine.self.value())] = &mine;
  // After a mismatch the communicator does nothing more.
  if (mismatch_ || std::ranges::find(here, nullptr) != here.end()) return;
  conclude(*mine.ordinal, here);
  if (!mismatch_) arrivals_.erase(*mine.ordinal);
}

void local_rendezvous::conclude(std::uint64_t ordinal, const arrivals& all) {
  const std::vector<const mock_launch*> launches(all.begin(), all.end());
  if (error why = find_mismatch(ordinal, launches)) {
    mismatch_ = std::move(why);
    return;
  }
  if (all.front()->computes) perform_all(launches);
  for (mock_launch* one : all) --one->pending;
  wake_all();
}

void local_rendezvous::conclude(const transfer_match& both) {
  if (error why = find_mismatch(*both.sent, *both.received)) {
    mismatch_ = std::move(why);
    return;
  }
  if (both.sender->computes) perform_transfer(both.sent->call, both.received->call);
  both.sent->over = both.received->over = true;
  --both.sender->pending;
  --both.receiver->pending;
  wake_all();
}

void local_rendezvous::leave(mock_launch& mine) noexcept {
  const std::lock_guard lock{mutex_};
  withdraw(mine);
}

void local_rendezvous::withdraw(mock_launch& mine) noexcept {
  if (!mine.arrived || mine.pending == 0) return;
  for (const mock_launch::transfer& one : mine.transfers) {
    const auto found = matches_.find({{one.from, one.to}, one.ordinal});
    if (one.over || found == matches_.end()) continue;
    transfer_match& both = found->second;
    if (both.sent == &one) both.sender = nullptr, both.sent = nullptr;
    if (both.received == &one) both.receiver = nullptr, both.received = nullptr;
  }
  if (!mine.ordinal) return;
  const auto found = arrivals_.find(*mine.ordinal);
  if (found == arrivals_.end()) return;
  mock_launch*& place = found->second[static_cast<std::size_t>(mine.self.value())];
  if (place == &mine) place = nullptr;
}

void local_rendezvous::check(rank self) const {
  const std::lock_guard lock{mutex_};
  if (mismatch_) {
    error why = *mismatch_;
    why.rank = self;
    throw exception{std::move(why)};
  }
  if (member_of(self).aborted) throw exception{aborted_error(self)};
}

void local_rendezvous::abort(rank self) noexcept {
  {
    const std::lock_guard lock{mutex_};
    member& me = member_of(self);
    me.aborted = true;
    for (auto& [ordinal, here] : arrivals_) here[static_cast<std::size_t>(self.value())] = nullptr;
    for (auto& [key, both] : matches_) {
      if (both.sender != nullptr && both.sender->self == self) both.sender = nullptr, both.sent = nullptr;
      if (both.receiver != nullptr && both.receiver->self == self) both.receiver = nullptr, both.received = nullptr;
    }
    if (me.engine) me.engine->wake();
  }
  joined_changed_.notify_all();
}

mock_launch make_launch(std::span<const operation* const> all, rank self, int world_size) {
  mock_launch made{.self = self, .text = describe_all(all)};
  std::vector<mock_call> calls;
  for (const operation* one : all) std::ranges::move(calls_of(*one, self, world_size), std::back_inserter(calls));
  std::vector<signature> asked;
  asked.reserve(calls.size());
  for (const mock_call& one : calls) asked.push_back(one.what);
  for (const std::size_t i : point_to_point_order(asked)) {
    const auto mine = static_cast<std::size_t>(self.value());
    const auto peer = static_cast<std::size_t>(asked[i].root.value());
    const bool sends = asked[i].is_send();
    made.transfers.push_back({.call = std::move(calls[i]), .from = sends ? mine : peer, .to = sends ? peer : mine});
  }
  for (std::size_t i = 0; i < calls.size(); ++i)
    if (!asked[i].is_point_to_point()) made.collectives.push_back(std::move(calls[i]));
  return made;
}

void mock_order::number(mock_launch& next) {
  for (mock_launch::transfer& one : next.transfers)
    one.ordinal = one.call.what.is_send() ? sent_[one.to]++ : received_[one.from]++;
  if (!next.collectives.empty()) next.ordinal = collectives_++;
}

void local_rendezvous::wake_all() const noexcept {
  for (const member& one : members_) one.engine->wake();
}

} // namespace troupe
