// Manages memory that several requests of a simulated run use in turn: registered memory, and that of captured plans.

#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/extents.hpp>
#include <troupe/device/error.hpp>
#include <troupe/testing/simulation/fibers.hpp>
#include <troupe/testing/simulation/simulated_memory.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::simulation {

namespace {

/// The alignment of a request's place in registered memory.
constexpr std::size_t registered_alignment = 256;

rank origin_of(const rank_capture& mine) {
  return rank{mine.where()->id().value()}; // its number in the first epoch
}

} // namespace

const simulated_memory::place& simulated_memory::place_of(const planned_request& what, rank self) const {
  if (what.what == operation_kind::replay && what.source) {
    const auto asked = asked_in_.find(what.number);
    if (const auto plan = plans_.find(*what.source); plan != plans_.end()) {
      const plan_memory& mine = plan->second[static_cast<std::size_t>(self.value())];
      const std::uint64_t formation = asked == asked_in_.end() ? 0 : asked->second.value() - 1;
      const auto taken = mine.taken_in.find(formation);
      // A world of one rank has no communicator that reports the capture.
      return mine.sets[taken != mine.taken_in.end() ? taken->second : mine.used == 0 ? 0 : mine.used - 1];
    }
  }
  return places_[static_cast<std::size_t>(self.value())].at(what.number);
}

bool simulated_memory::is_place_known(const planned_request& replay, rank self) const {
  const auto asked = asked_in_.find(replay.number);
  const auto roster = rosters_.find(replay.number);
  if (asked == asked_in_.end() || roster == rosters_.end() || roster->second.size() == 1) return true;
  const auto& taken_in = plans_.at(*replay.source)[static_cast<std::size_t>(self.value())].taken_in;
  return taken_in.contains(asked->second.value() - 1);
}

std::size_t simulated_memory::registered_bytes() const {
  std::size_t all = registered_alignment;
  for (const planned_request& one : of_.requests) {
    if (!one.source || one.what == operation_kind::replay) continue;
    const shape needed = most_of(one);
    all += ((needed.sent + needed.received) * element_bytes / registered_alignment + 1) * registered_alignment;
  }
  return all / 2; // not enough for all at once: a request that finds no room uses its other memory
}

void simulated_memory::open_registered(std::size_t registration, std::shared_ptr<registered_pool> pool) {
  pools_[registration] = std::move(pool);
}

/// Moves the request's memory to registered memory if the pool belongs to exactly these ranks and has room. Otherwise
/// the memory does not change.
void simulated_memory::enter_registered(const planned_request& what, const std::vector<rank>& ranks) {
  if (!what.source || what.what == operation_kind::replay) return;
  const auto pool = pools_.find(*what.source);
  const shape needed = most_of(what);
  if (pool == pools_.end() || needed.sent + needed.received == 0) return;
  std::vector<buffer> given;
  try {
    given = pool->second->allocate((needed.sent + needed.received) * element_bytes);
  } catch (const exception&) {
    return;
  }
  if (given.size() != ranks.size()) return;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    place mine{.sent = given[i].data(), .size = needed};
    mine.received = mine.sent + needed.sent * element_bytes;
    if (needed.sent == 0) mine.sent = nullptr;
    if (needed.received == 0) mine.received = nullptr;
    fill(what, ranks[i], mine);
    places_[static_cast<std::size_t>(ranks[i].value())][what.number] = mine;
    registered_[{what.number, ranks[i]}] = std::move(given[i]);
  }
}

const std::byte* simulated_memory::registered_place(const planned_request& what, rank self) const {
  const auto found = registered_.find({what.number, self});
  return found == registered_.end() ? nullptr : found->second.data();
}

void simulated_memory::give_back(const planned_request& what) {
  if (registered_.lower_bound({what.number, rank{0}}) == registered_.end()) return;
  freeze(what);
  std::erase_if(registered_, [&](const auto& one) { return one.first.first == what.number; });
}

void simulated_memory::freeze(const planned_request& what) {
  if (frozen_.contains(what.number)) return;
  std::vector<finding> all;
  for (int r = 0; r < of_.ranks; ++r) all.push_back(look_now(what, rank{r}));
  frozen_[what.number] = std::move(all);
}

simulated_memory::place& simulated_memory::next_set(const planned_request& what, rank self) {
  plan_memory& mine = plan_of(what.number, self);
  if (mine.used == mine.sets.size()) throw exception{errc::out_of_memory, "the client has no more memory for its plan"};
  return mine.sets[mine.used++];
}

simulated_memory::plan_part simulated_memory::plan_part_of(const planned_request& what, rank self,
                                                           const place& on) const {
  const auto watched = [&](std::byte* first) {
    const auto set = [on](const place& one) { return one.received == on.received; };
    return buffer{std::make_shared<watched_block>(
        devices_[static_cast<std::size_t>(self.value())], first, what.count, buffer{}, [this, set, what, self] {
          const auto replay = replays_.find(what.number);
          if (replay == replays_.end() || !is_place_known(*replay->second, self)) return;
          if (!set(place_of(*replay->second, self))) return;
          if (hook_ && !frozen_.contains(replay->second->number)) hook_(replay->second->number, self);
        })};
  };
  return {{.send = watched(on.sent), .recv = watched(on.received), .count = what.count, .type = dtype::u64},
          watched(on.received + what.count * element_bytes)};
}

capture_function simulated_memory::function_of(const planned_request& what) {
  return [this, &what](rank_capture& mine) {
    using namespace std::chrono_literals;
    const rank self = origin_of(mine);
    const place& on = next_set(what, self);
    prng chance{mix(of_.seed, 11 + what.number,
                    plan_of(what.number, self).used * 1'000'003U + static_cast<std::uint64_t>(self.value()))};
    if (chance.one_in(4)) fibers::current()->sleep(chance.within(chance.one_in(5) ? 30ms : 1ms));
    if (what.throws && chance.one_in(8 * static_cast<std::size_t>(of_.ranks)))
      throw std::runtime_error{"injected by the simulation"};
    const plan_part part = plan_part_of(what, self, on);
    mine.launch(part.sum);
    mine.stream().copy(part.copied_to.data(), on.received, what.count * element_bytes);
    mine.keep(part.copied_to);
  };
}

plan_steps simulated_memory::steps_of(const planned_request& what, const std::vector<rank>& ranks) {
  plan_steps steps(2);
  for (const rank self : ranks) {
    const place& on = next_set(what, self);
    plan_part part = plan_part_of(what, self, on);
    steps[1].emplace_back(copy{part.sum.recv, std::move(part.copied_to)});
    steps[0].emplace_back(std::move(part.sum));
  }
  return steps;
}

void simulated_memory::captured(const planned_request& what, rank self, const operation& part,
                                std::uint64_t formation) {
  const auto* const sum = std::get_if<all_reduce>(&part);
  if (sum == nullptr) return;
  plan_memory& mine = plan_of(what.number, self);
  for (std::size_t i = 0; i < mine.sets.size(); ++i)
    if (mine.sets[i].sent == sum->send.memory.data()) mine.taken_in[formation] = i;
}

void simulated_memory::refill(const planned_request& replay) {
  replays_[*replay.source] = &replay;
  for (int r = 0; r < of_.ranks; ++r)
    for (const place& one : plan_of(*replay.source, rank{r}).sets) fill(replay, rank{r}, one);
}

buffer simulated_memory::hand_out(const planned_request& what, rank self, std::byte* first, std::size_t count) const {
  if (first == nullptr || count == 0) return {};
  const auto home = static_cast<std::size_t>(self.value() + (what.foreign == self ? 1 : 0)) % devices_.size();
  const auto under = registered_.find({what.number, self});
  return buffer{std::make_shared<watched_block>(devices_[home], first, count,
                                                under == registered_.end() ? buffer{} : under->second,
                                                [hook = hook_, number = what.number, self] {
                                                  if (hook) hook(number, self);
                                                })};
}

namespace {

agreement_rule rule_of(std::size_t number) {
  return enum_values<agreement_rule>[number % enum_values<agreement_rule>.size()];
}

} // namespace

std::vector<std::int64_t> simulated_memory::agreed(const planned_request& what, std::optional<rank> self) const {
  const auto roster = rosters_.find(what.number);
  const participants among =
      participants_of(what, self || roster == rosters_.end() ? self.value_or(rank{0}) : roster->second.front());
  std::vector<std::int64_t> all;
  for (const rank one : among.ranks) all.push_back(static_cast<std::int64_t>(value(what.number, one, 0)));
  const auto folded = [&](auto combine) {
    std::int64_t made = all.front();
    for (std::size_t i = 1; i < all.size(); ++i) made = combine(made, all[i]);
    return std::vector{made};
  };
  switch (rule_of(what.number)) {
    case agreement_rule::of_rank: return {static_cast<std::int64_t>(value(what.number, among.root, 0))};
    case agreement_rule::any_of: return folded([](std::int64_t a, std::int64_t b) { return a | b; });
    case agreement_rule::all_of: return folded([](std::int64_t a, std::int64_t b) { return a & b; });
    case agreement_rule::min: return {std::ranges::min(all)};
    case agreement_rule::max: return {std::ranges::max(all)};
    case agreement_rule::sum: {
      std::uint64_t sum = 0; // it wraps
      for (const std::int64_t one : all) sum += static_cast<std::uint64_t>(one);
      return {static_cast<std::int64_t>(sum)};
    }
    case agreement_rule::union_of: {
      const std::set<std::int64_t> once{all.begin(), all.end()};
      return {once.begin(), once.end()};
    }
    case agreement_rule::gather_all: break;
  }
  return all;
}

operation simulated_memory::part_of(const planned_request& what, rank self, bool less) const {
  if (what.what == operation_kind::barrier) return barrier{.commit = what.commit};
  if (what.what == operation_kind::agree) {
    const participants among = participants_of(what, self);
    const agreement_rule rule = rule_of(what.number + (less && among.ranks.size() > 1 ? 1 : 0));
    if (what.objecting == self) return agree{rule, std::vector<std::byte>(most_contributed_bytes + 1)};
    return agree{rule, contribution{static_cast<std::int64_t>(value(what.number, self, 0))}.bytes,
                 rule == agreement_rule::of_rank ? among.root_here : rank{}};
  }
  const place& mine = place_of(what, self);
  constexpr dtype type = dtype::u64;
  const participants all = participants_of(what, self);
  const std::size_t count = what.count - (less && all.ranks.size() > 1 ? 1 : 0);
  const shape size = shape_of(what, self, all);
  buffer sent = hand_out(what, self, mine.sent, size.sent);
  buffer received = hand_out(what, self, mine.received, size.received);
  const auto fill = [&]<class Operation>(Operation one) {
    one.send = std::move(sent);
    one.recv = std::move(received);
    one.count = count;
    one.type = type;
    if constexpr (requires { one.root; }) one.root = all.root_here;
    return one;
  };
  switch (what.what) {
    case operation_kind::all_reduce: return fill(all_reduce{});
    case operation_kind::broadcast: return fill(broadcast{});
    case operation_kind::reduce: return fill(reduce{});
    case operation_kind::all_gather: return fill(all_gather{});
    case operation_kind::reduce_scatter: return fill(reduce_scatter{});
    case operation_kind::all_to_all: return fill(all_to_all{});
    case operation_kind::group: {
      group two;
      two.parts.emplace_back(all_reduce{.send = sent, .recv = received, .count = 1, .type = type});
      two.parts.emplace_back(all_reduce{.send = sent.slice(element_bytes, sent.size_bytes() - element_bytes),
                                        .recv = received.slice(element_bytes, received.size_bytes() - element_bytes),
                                        .count = count - 1,
                                        .type = type});
      return two;
    }
    case operation_kind::exchange: {
      group two;
      two.parts.emplace_back(
          send{.memory = sent, .count = count, .type = type, .peer = all.name_of(all.after(self)), .tag = 1});
      two.parts.emplace_back(
          recv{.memory = received, .count = count, .type = type, .peer = all.name_of(all.before(self)), .tag = 1});
      return two;
    }
    case operation_kind::transfer:
      if (size.sent > 0)
        return send{.memory = sent, .count = count, .type = type, .peer = all.name_of(all.after(self))};
      if (size.received > 0) return recv{.memory = received, .count = count, .type = type, .peer = all.root_here};
      return group{};
    case operation_kind::copy: {
      const rank from = all.before(self);
      const place& theirs = place_of(what, from);
      return copy{buffer{std::make_shared<watched_block>(devices_[static_cast<std::size_t>(from.value())], theirs.sent,
                                                         what.count, buffer{}, nullptr)},
                  received};
    }
    case operation_kind::barrier:
    case operation_kind::agree:
    case operation_kind::registration:
    case operation_kind::capture:
    case operation_kind::replay: break;
  }
  return barrier{};
}

std::optional<std::size_t> simulated_memory::request_of(const operation& part, rank self) const {
  const auto& known = requests_[static_cast<std::size_t>(self.value())];
  std::optional<std::size_t> named;
  visit_operands(part, [&](const operand& one, std::string_view) {
    const auto found = known.find(one.memory.data());
    if (!named && found != known.end()) named = found->second;
  });
  return named;
}

} // namespace troupe::simulation
