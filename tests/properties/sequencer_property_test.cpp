// Any requests of any ranks in any lanes, joined in any order that keeps each rank's own, with and without requests
// that are taken back: judged from what was asked, not from the sequencer's tables.
#include "collectives/order/sequencer_rig.hpp"
#include "properties/property.hpp"

#include <troupe/collectives/operation/signature.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace troupe::tests::sequencer_property_test {

namespace {

using operations = sequencer_rig::operations;

/// One request of a rank, and the operation that it is part of.
struct drawn_ask {
  int lane = 0;
  int part_of = 0;
  operation what;
  std::string name{}; ///< Once it has been asked.
  std::uint64_t position = 0;
};

/// What each rank asks for, in its order. Every rank has the operations of a lane in one order, so that all can end.
struct drawn_case {
  int size = 0;
  int lanes = 0;
  int operations = 0;
  std::vector<std::vector<drawn_ask>> ranks;
};

lane lane_number(int index) {
  return index == 0 ? lane{} : lane::named("property " + std::to_string(index));
}

/// The requests of one operation by rank; ranks that take no part have none, and some several.
std::multimap<int, operation> drawn_operation(int size) {
  std::multimap<int, operation> parts;
  const auto count = *rc::gen::inRange<std::size_t>(0, 4);
  const auto any_rank = [&] { return *rc::gen::inRange(0, size); };
  const auto tag = [&] { return *rc::gen::inRange(0, 2); };
  switch (*rc::gen::inRange(0, 8)) {
    case 0:
      for (int r = 0; r < size; ++r) parts.emplace(r, sum_of(count));
      break;
    case 1:
      for (int r = 0; r < size; ++r) parts.emplace(r, barrier{});
      break;
    case 2: parts.emplace(any_rank(), copy{}); break;
    case 3: { // a send and its recv
      const int source = any_rank();
      const int destination = (source + *rc::gen::inRange(0, size)) % size;
      const int tagged = tag();
      if (source == destination) {
        parts.emplace(source, group{{to(source, tagged, count), from(source, tagged, count)}});
        break;
      }
      parts.emplace(source, to(destination, tagged, count));
      parts.emplace(destination, from(source, tagged, count));
      break;
    }
    case 4: { // a ring, or part of one
      const int length = *rc::gen::inRange(1, size + 1);
      const int tagged = tag();
      for (int r = 0; r < length; ++r)
        parts.emplace(r, group{{from((r + length - 1) % length, tagged, count), to((r + 1) % length, tagged, count)}});
      break;
    }
    case 5: { // from one to several, which receive by themselves
      const int source = any_rank();
      group all;
      for (int r = 0; r < size; ++r) {
        if (r == source || *rc::gen::arbitrary<bool>()) continue;
        all.parts.push_back(to(r, 1, count));
        parts.emplace(r, from(source, 1, count));
      }
      parts.emplace(source, all);
      break;
    }
    case 6: { // a group that meets requests which another rank asks for one after the other
      const int source = any_rank();
      const int destination = (source + 1) % size;
      if (source == destination) {
        parts.emplace(source, to(source, 0, count));
        parts.emplace(source, from(source, 0, count));
        break;
      }
      parts.emplace(source, group{{to(destination, 1, count), to(destination, 0, count)}});
      parts.emplace(destination, from(source, 0, count));
      parts.emplace(destination, from(source, 1, count));
      break;
    }
    default: // a group with a collective, and a transfer beside it
      for (int r = 0; r < size; ++r) {
        group both{{sum_of(count)}};
        if (r == 0) both.parts.push_back(to(size - 1, 0, count));
        if (r == size - 1) both.parts.push_back(from(0, 0, count));
        parts.emplace(r, both);
      }
  }
  return parts;
}

drawn_case drawn(int least_ranks = 1) {
  drawn_case made;
  made.size = *rc::gen::inRange(least_ranks, 6);
  made.lanes = *rc::gen::inRange(1, 4);
  made.operations = *rc::gen::inRange(1, 30);
  made.ranks.resize(static_cast<std::size_t>(made.size));
  std::vector<std::vector<std::vector<drawn_ask>>> queues(
      static_cast<std::size_t>(made.size), std::vector<std::vector<drawn_ask>>(static_cast<std::size_t>(made.lanes)));
  for (int i = 0; i < made.operations; ++i) {
    const int where = *rc::gen::inRange(0, made.lanes);
    for (auto& [self, what] : drawn_operation(made.size)) {
      auto& queue = queues[static_cast<std::size_t>(self)][static_cast<std::size_t>(where)];
      queue.push_back({.lane = where, .part_of = i, .what = what, .position = queue.size()});
    }
  }
  // Each rank mixes its lanes in a way of its own.
  for (std::size_t self = 0; self < queues.size(); ++self) {
    std::vector<std::size_t> next(queues[self].size());
    for (;;) {
      std::vector<std::size_t> open;
      for (std::size_t l = 0; l < next.size(); ++l)
        if (next[l] < queues[self][l].size()) open.push_back(l);
      if (open.empty()) break;
      const std::size_t l = *rc::gen::elementOf(open);
      made.ranks[self].push_back(queues[self][l][next[l]++]);
    }
  }
  return made;
}

/// Asks for the next of \p self, with a deadline that not all have.
void ask_next(sequencer_rig& rig, drawn_case& all, std::vector<std::size_t>& next, std::size_t self,
              time_point deadline = time_point::max()) {
  drawn_ask& one = all.ranks[self][next[self]++];
  one.name = rig.ask(static_cast<int>(self), one.what,
                     {.lane = lane_number(one.lane), .client = 1, .position = one.position, .deadline = deadline});
}

std::optional<std::size_t> draw_asker(const drawn_case& all, const std::vector<std::size_t>& next) {
  std::vector<std::size_t> open;
  for (std::size_t r = 0; r < next.size(); ++r)
    if (next[r] < all.ranks[r].size()) open.push_back(r);
  if (open.empty()) return std::nullopt;
  return *rc::gen::elementOf(open);
}

/// What is wrong with a log of releases, judged by what was asked; "" where it is right.
/// Holds ORD-1: each operation stands alone and whole, and each rank's lanes are in their own order.
std::string fault_of(const operations& log, const drawn_case& all, bool complete) {
  std::map<std::string, std::pair<std::size_t, const drawn_ask*>> known;
  std::vector<std::size_t> parts(static_cast<std::size_t>(all.operations));
  for (std::size_t r = 0; r < all.ranks.size(); ++r)
    for (const drawn_ask& one : all.ranks[r]) {
      if (!one.name.empty()) known[one.name] = {r, &one};
      ++parts[static_cast<std::size_t>(one.part_of)];
    }
  std::map<std::pair<std::size_t, int>, std::uint64_t> next; // position, by rank and lane
  std::set<int> released;
  std::size_t count = 0;
  for (const auto& together : log) {
    std::set<int> operations_here;
    for (const std::string& name : together) {
      const auto found = known.find(name);
      if (found == known.end()) return name + " was released and never asked";
      const auto& [self, one] = found->second;
      operations_here.insert(one->part_of);
      auto& expected = next[{self, one->lane}];
      if (one->position < expected) return name + " was released behind a later request of its lane";
      if (complete && one->position != expected) return name + " was released before an earlier request of its lane";
      expected = one->position + 1;
      ++count;
    }
    // Operations may only be joined where transfers join them; none of the drawn ones do.
    if (operations_here.size() != 1) return "requests of several operations were released as one";
    const int which = *operations_here.begin();
    if (!released.insert(which).second) return "operation " + std::to_string(which) + " was released in pieces";
    if (together.size() != parts[static_cast<std::size_t>(which)])
      return "operation " + std::to_string(which) + " was released without all of its parts";
  }
  if (complete && count != known.size()) return "not everything was released";
  return {};
}

/// The logs of any two ranks agree on the operations that they share.
std::string disagreement_of(const operations& log, const drawn_case& all) {
  std::map<std::string, int> part_of;
  for (const auto& asks : all.ranks)
    for (const drawn_ask& one : asks) part_of[one.name] = one.part_of;
  const auto seen_by = [&](int self) {
    std::vector<int> seen;
    for (const auto& together : log)
      for (const std::string& name : together)
        if (name.starts_with(std::to_string(self) + '/')) seen.push_back(part_of[name]);
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end()); // several requests of one operation
    return seen;
  };
  for (int a = 0; a < all.size; ++a)
    for (int b = a + 1; b < all.size; ++b) {
      std::vector<int> one = seen_by(a);
      std::vector<int> other = seen_by(b);
      const auto shared_with = [](std::vector<int> mine, const std::vector<int>& theirs) {
        std::erase_if(mine, [&](int it) { return std::ranges::find(theirs, it) == theirs.end(); });
        return mine;
      };
      if (shared_with(one, other) != shared_with(other, one))
        return "ranks " + std::to_string(a) + " and " + std::to_string(b) + " see different orders";
    }
  return {};
}

std::string describe_all(const drawn_case& all) {
  std::string text = std::to_string(all.size) + " ranks\n";
  for (std::size_t r = 0; r < all.ranks.size(); ++r)
    for (const drawn_ask& one : all.ranks[r])
      text += "rank " + std::to_string(r) + " lane " + std::to_string(one.lane) + " operation " +
              std::to_string(one.part_of) + ' ' + one.name + ": " + describe(one.what) + '\n';
  return text;
}

} // namespace

TEST_CASE("property: in any order of requests, all are released once, whole, and in one order",
          "[properties][collectives][sequencing][ORD-1]") {
  std::size_t faults_seen = 0;
  check_property(
      "one order",
      [&] {
        drawn_case all = drawn();
        sequencer_rig rig{all.size};
        std::vector<std::size_t> next(all.ranks.size());
        while (const auto self = draw_asker(all, next)) ask_next(rig, all, next, *self);
        RC_LOG() << describe_all(all);
        RC_ASSERT(rig.refused.empty());
        RC_ASSERT(rig.doubled == 0);
        RC_ASSERT(rig.order.waiting() == 0U);
        RC_ASSERT(fault_of(rig.released, all, true) == "");
        RC_ASSERT(disagreement_of(rig.released, all) == "");
        // The judge sees what is wrong when something is: two operations that share a lane at a rank change places.
        for (std::size_t i = 0; i + 1 < rig.released.size(); ++i) {
          operations swapped = rig.released;
          std::swap(swapped[i], swapped[i + 1]);
          const auto shared = [&](const std::string& name) {
            const auto place = [&](const std::string& it) {
              for (std::size_t r = 0; r < all.ranks.size(); ++r)
                for (const drawn_ask& one : all.ranks[r])
                  if (one.name == it) return std::pair{r, one.lane};
              return std::pair{all.ranks.size(), 0};
            };
            return std::ranges::any_of(rig.released[i + 1],
                                       [&](const std::string& other) { return place(other) == place(name); });
          };
          if (!std::ranges::any_of(rig.released[i], shared)) continue;
          RC_ASSERT(fault_of(swapped, all, true) != "");
          ++faults_seen;
          break;
        }
      },
      5);
  CHECK(faults_seen > 0);
}

TEST_CASE("property: a difference planted in one request refuses its operation alone",
          "[properties][collectives][sequencing][ORD-2]") {
  std::size_t planted = 0;
  check_property(
      "planted mismatches of one order",
      [&] {
        drawn_case all = drawn(2);
        // At the end of every rank's first lane, an all_reduce that does not fit at one of them.
        const int planted_at = all.operations++;
        const int wrong = *rc::gen::inRange(0, all.size);
        for (int r = 0; r < all.size; ++r) {
          auto& asks = all.ranks[static_cast<std::size_t>(r)];
          const auto in_lane = [](const drawn_ask& one) { return one.lane == 0; };
          const auto position = static_cast<std::uint64_t>(std::ranges::count_if(asks, in_lane));
          asks.push_back({.part_of = planted_at, .what = sum_of(r == wrong ? 8 : 7), .position = position});
        }
        ++planted;
        sequencer_rig rig{all.size};
        std::vector<std::size_t> next(all.ranks.size());
        while (const auto self = draw_asker(all, next)) ask_next(rig, all, next, *self);
        RC_LOG() << describe_all(all);
        RC_ASSERT(rig.doubled == 0);
        RC_ASSERT(rig.order.waiting() == 0U);
        RC_ASSERT(rig.refused.size() == static_cast<std::size_t>(all.size));
        // And what comes then is served.
        for (int r = 0; r < all.size; ++r) rig.ask(r, barrier{}, {.client = 1});
        RC_ASSERT(rig.order.waiting() == 0U);
        rig.released.pop_back();
        for (const auto& asks : all.ranks)
          for (const drawn_ask& one : asks)
            RC_ASSERT((rig.code(one.name) == errc::mismatch) == (one.part_of == planted_at));
        RC_ASSERT(fault_of(rig.released, all, false) == "");
      },
      2);
  CHECK(planted > 0);
}

TEST_CASE("property: with any withdrawals, every request is answered once, nothing hangs, and the lanes stay in step",
          "[properties][collectives][sequencing][ONE-1][ORD-1]") {
  std::size_t withdrawn = 0;
  check_property(
      "withdrawals",
      [&] {
        drawn_case all = drawn();
        sequencer_rig rig{all.size};
        std::vector<std::size_t> next(all.ranks.size());
        int now = 1;
        std::string done;
        while (const auto self = draw_asker(all, next)) {
          const bool hurried = *rc::gen::inRange(0, 8) == 0;
          ask_next(rig, all, next, *self, hurried ? at_ms(now + *rc::gen::inRange(1, 4)) : time_point::max());
          switch (*rc::gen::inRange(0, 12)) {
            case 0: {
              const auto& asks = all.ranks[*self];
              const drawn_ask& one = asks[*rc::gen::inRange<std::size_t>(0, next[*self])];
              if (rig.cancel(static_cast<int>(*self), one.position, lane_number(one.lane)))
                done += " cancel " + one.name;
              break;
            }
            case 1:
              rig.withdraw(static_cast<int>(*self), 1, {.code = errc::abandoned, .text = "gone"});
              done += " withdraw " + std::to_string(*self);
              break;
            case 2: rig.expire(++now); break;
            default: break;
          }
        }
        rig.expire(now + 100);
        RC_LOG() << describe_all(all) << done;
        // All ranks have asked for all: what is not released has been refused, with its whole operation.
        RC_ASSERT(rig.doubled == 0);
        RC_ASSERT(rig.order.waiting() == 0U);
        RC_ASSERT(fault_of(rig.released, all, false) == "");
        RC_ASSERT(disagreement_of(rig.released, all) == "");
        std::size_t released = 0;
        for (const auto& one : rig.released) released += one.size();
        std::size_t asked = 0;
        std::map<int, std::set<bool>> outcomes;
        for (const auto& asks : all.ranks)
          for (const drawn_ask& one : asks) {
            ++asked;
            outcomes[one.part_of].insert(rig.refused.contains(one.name));
          }
        RC_ASSERT(released + rig.refused.size() == asked);
        for (const auto& [which, seen] : outcomes) RC_ASSERT(seen.size() == 1U);
        withdrawn += rig.refused.size();
        // And what comes then still meets.
        const std::size_t before = rig.released.size();
        for (int l = 0; l < all.lanes; ++l)
          for (int r = 0; r < all.size; ++r) {
            rig.ask(r, barrier{}, {.lane = lane_number(l), .client = 1});
            rig.ask(r, group{{to((r + 1) % all.size), from((r + all.size - 1) % all.size)}},
                    {.lane = lane_number(l), .client = 1});
          }
        RC_ASSERT(rig.released.size() == before + 2 * static_cast<std::size_t>(all.lanes));
        RC_ASSERT(rig.order.waiting() == 0U);
      },
      10);
  CHECK(withdrawn > 0);
}

TEST_CASE("property: a world that is closed at any time hands out all that waited, once",
          "[properties][collectives][sequencing][ONE-1]") {
  check_property(
      "closing",
      [&] {
        drawn_case all = drawn();
        sequencer_rig rig{all.size};
        std::vector<std::size_t> next(all.ranks.size());
        const int steps = *rc::gen::inRange(0, 40);
        std::size_t asked = 0;
        for (int i = 0; i < steps; ++i)
          if (const auto self = draw_asker(all, next)) {
            ask_next(rig, all, next, *self);
            ++asked;
            if (i % 7 == 3) rig.cancel(static_cast<int>(*self), 0, lane_number(0));
          }
        rig.close({.code = errc::world_failed, .text = "lost"});
        std::size_t released = 0;
        for (const auto& one : rig.released) released += one.size();
        RC_ASSERT(rig.doubled == 0);
        RC_ASSERT(rig.order.waiting() == 0U);
        RC_ASSERT(released + rig.refused.size() == asked);
      },
      3);
}

} // namespace troupe::tests::sequencer_property_test
