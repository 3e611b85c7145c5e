// Any requests of any ranks in any lanes, told in any order that keeps each connection's own, with requests that are
// taken back meanwhile: every rank launches what it takes part in, in one order (ORD-1), all or none of an operation's
// ranks do, and everything is answered once (ONE-1).
#include "processes/order/distributed_rig.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <map>
#include <random>

using namespace troupe;
using namespace troupe::tests;

namespace {

struct planned_ask {
  lane where;
  std::size_t part_of = 0; ///< An operation, whose elements are as many.
  operation what;
  outcome_log log{};
};

/// The operation that a launch is of: "a send of 7 i32 to rank 1, tag 0" is the seventh.
std::size_t operation_of(const std::string& note) {
  const auto end = note.find(" i32");
  REQUIRE(end != std::string::npos);
  return std::stoul(note.substr(note.rfind(' ', end - 1)));
}

class drawn_world {
public:
  explicit drawn_world(unsigned seed)
    : random_{seed}, rig_{2 + static_cast<int>(draw(3))}, ranks_(size()), next_(size()) {
    const std::size_t lanes = 1 + draw(3);
    std::vector<std::vector<std::vector<planned_ask>>> by_lane(lanes, std::vector<std::vector<planned_ask>>(size()));
    for (std::size_t count = 10 + draw(30); operations_ < count;) {
      const std::size_t l = draw(lanes);
      plan(by_lane[l], l == 0 ? lane{} : lane::named("drawn " + std::to_string(l)));
    }
    // Each rank has the operations of a lane in one order; how lanes alternate is its own affair.
    for (std::size_t r = 0; r < size(); ++r) {
      std::vector<std::size_t> left(lanes);
      for (std::size_t all = 0; all < lanes;) {
        const std::size_t l = draw(lanes);
        if (left[l] < by_lane[l][r].size()) ranks_[r].push_back(by_lane[l][r][left[l]++]);
        all = 0;
        for (std::size_t i = 0; i < lanes; ++i) all += left[i] == by_lane[i][r].size() ? 1 : 0;
      }
    }
  }

  void run(bool with_cancels) {
    for (std::size_t left = 1; left > 0;) {
      const std::size_t r = draw(size());
      const int self = static_cast<int>(r);
      switch (draw(with_cancels ? 7 : 6)) {
        case 0:
        case 1:
        case 2:
          if (next_[r] < ranks_[r].size()) {
            planned_ask& one = ranks_[r][next_[r]++];
            one.log = rig_.ask(self, one.where, one.what);
          }
          break;
        case 3:
        case 4: rig_.deliver_up(self); break;
        case 5: rig_.deliver_down(self); break;
        default: rig_.orders[r]->cancel(rank{self}, ranks_[r][draw(ranks_[r].size())].where, draw(20));
      }
      CHECK_FALSE(rig_.refused_above);
      CHECK_FALSE(rig_.refused_below);
      left = 0;
      for (std::size_t i = 0; i < size(); ++i) left += ranks_[i].size() - next_[i];
    }
    rig_.deliver_all();
    rig_.finish();
  }

  void judge(bool with_cancels) const {
    std::map<std::size_t, std::size_t> asked;
    std::map<std::size_t, std::size_t> succeeded;
    for (const auto& all : ranks_)
      for (const planned_ask& one : all) {
        CHECK(one.log.count() == 1);
        const error why = one.log.failure();
        if (why) CHECK(why.code == errc::cancelled);
        ++asked[one.part_of];
        succeeded[one.part_of] += why ? 0 : 1;
      }
    for (const auto& [which, count] : succeeded) CHECK((count == 0 || count == asked[which]));
    CHECK(asked.size() == operations_);
    std::vector<std::vector<std::size_t>> launched(size());
    std::size_t launches = 0;
    for (std::size_t r = 0; r < size(); ++r)
      for (const std::string& note : *rig_.notes[r]) {
        launched[r].push_back(operation_of(note));
        CHECK(succeeded[launched[r].back()] > 0);
        ++launches;
      }
    std::size_t good = 0;
    for (const auto& [which, count] : succeeded) good += count;
    CHECK(launches == good);
    if (!with_cancels) CHECK(good == std::size_t{asks()});
    for (std::size_t a = 0; a < size(); ++a)
      for (std::size_t b = a + 1; b < size(); ++b)
        CHECK(common(launched[a], launched[b]) == common(launched[b], launched[a]));
    CHECK(rig_.keeper.waiting() == 0);
    for (const auto& link : rig_.links) CHECK(link->waiting() == 0);
  }

private:
  [[nodiscard]] std::size_t draw(std::size_t end) { return random_() % end; }
  [[nodiscard]] std::size_t size() const { return rig_.orders.size(); }
  [[nodiscard]] std::size_t asks() const {
    std::size_t all = 0;
    for (const auto& one : ranks_) all += one.size();
    return all;
  }

  static std::vector<std::size_t> common(const std::vector<std::size_t>& one, const std::vector<std::size_t>& other) {
    std::vector<std::size_t> found;
    for (const std::size_t which : one)
      if (std::ranges::find(other, which) != other.end()) found.push_back(which);
    return found;
  }

  void plan(std::vector<std::vector<planned_ask>>& ranks, lane where) {
    const std::size_t count = ++operations_;
    const int n = rig_.size();
    const auto add = [&](int self, operation what) {
      ranks[static_cast<std::size_t>(self)].push_back({where, count, std::move(what)});
    };
    const int source = static_cast<int>(draw(size()));
    const int destination = (source + 1 + static_cast<int>(draw(size() - 1))) % n;
    const int tag = static_cast<int>(draw(2));
    switch (draw(4)) {
      case 0:
        add(source, rig_.pass(source, destination, count, tag));
        add(destination, rig_.take(destination, source, count, tag));
        break;
      case 1:
        for (int r = 0; r < n; ++r)
          add(r, group{{rig_.pass(r, (r + 1) % n, count, 2), rig_.take(r, (r + n - 1) % n, count, 2)}});
        break;
      default:
        for (int r = 0; r < n; ++r) add(r, rig_.add(r, count));
    }
  }

  std::mt19937 random_;
  distributed_rig rig_;
  std::size_t operations_ = 0;
  std::vector<std::vector<planned_ask>> ranks_;
  std::vector<std::size_t> next_; ///< By rank, what it asks next.
};

void hold_for_all(bool with_cancels) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    drawn_world world{seed};
    world.run(with_cancels);
    world.judge(with_cancels);
  }
}

} // namespace

TEST_CASE("however requests are told, ranks agree about their order (ORD-1, ONE-1)",
          "[collectives][sequencing][distributed][property][ORD-1]") {
  hold_for_all(false);
}

TEST_CASE("however requests are told and taken back, ranks agree about their order (ORD-1, ONE-1)",
          "[collectives][sequencing][distributed][property][ORD-1]") {
  hold_for_all(true);
}
