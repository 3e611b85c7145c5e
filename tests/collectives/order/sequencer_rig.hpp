/// A sequencer with everything that it has handed out, by the names of the requests.
#pragma once

#include <troupe/collectives/order/sequencer.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests {

class named_request final : public sequenced {
public:
  named_request(const sequencing_terms& terms, operation what, std::string name)
    : sequenced{terms}, what_{std::move(what)}, name_{std::move(name)} {}

  [[nodiscard]] const operation& what() const noexcept override { return what_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

private:
  operation what_;
  std::string name_;
};

[[nodiscard]] inline time_point at_ms(int count) {
  return time_point{std::chrono::milliseconds{count}};
}

/// Requests are named "rank/number", by the order of asking at the rank: "0/0", "0/1".
class sequencer_rig {
public:
  using operations = std::vector<std::vector<std::string>>;

  explicit sequencer_rig(int size, sequencer_limits limits = {}) : order{limits}, world{order.open_world(size)} {}

  std::string ask(int self, operation what, sequencing_terms terms = {}) {
    terms.world = terms.world == 0 ? world : terms.world;
    terms.rank = rank{self};
    std::string name = std::to_string(self) + '/' + std::to_string(asked_[self]++);
    order.ask(std::make_unique<named_request>(terms, std::move(what), name), effects);
    take();
    return name;
  }
  std::string ask(int self, lane where, operation what) { return ask(self, std::move(what), {.lane = where}); }
  bool cancel(int self, std::uint64_t position, lane where = {}) {
    const bool done = order.cancel(world, rank{self}, where, position, effects);
    take();
    return done;
  }
  void withdraw(int self, std::uint64_t client, const error& why) {
    order.withdraw(world, rank{self}, client, why, effects);
    take();
  }
  void expire(int ms) {
    order.expire(at_ms(ms), effects);
    take();
  }
  void leave(int self, const error& why) {
    order.leave(world, rank{self}, why, effects);
    take();
  }
  void retire(lane where, const error& why) {
    order.retire(world, where, why, effects);
    take();
  }
  void close(const error& why) {
    order.close_world(world, why, effects);
    take();
  }
  [[nodiscard]] errc code(const std::string& name) const {
    return refused.contains(name) ? refused.at(name).code : errc::none;
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    return refused.contains(name) ? refused.at(name).text : "";
  }

  sequencer order;
  std::uint32_t world;
  operations released; ///< By operation.
  std::map<std::string, error> refused;
  std::map<std::string, std::shared_ptr<absence_report>> absences;
  std::vector<std::shared_ptr<absence_report>> straggling;
  int doubled = 0; ///< Handed out twice.

private:
  void take() {
    std::size_t next = 0;
    for (const std::size_t end : effects.ends) {
      auto& one = released.emplace_back();
      for (; next < end; ++next) one.push_back(note(*effects.released[next]));
    }
    doubled += next == effects.released.size() ? 0 : 1; // a request of no operation
    for (auto& one : effects.refused) {
      const std::string name = note(*one.what);
      refused.emplace(name, one.why);
      if (one.absence) absences.emplace(name, one.absence);
    }
    straggling.insert(straggling.end(), effects.straggling.begin(), effects.straggling.end());
    effects.clear();
  }
  std::string note(const sequenced& one) {
    const std::string& name = static_cast<const named_request&>(one).name();
    if (++handed_out_[name] > 1) ++doubled;
    return name;
  }

  sequencing_effects effects;
  std::map<int, int> asked_;
  std::map<std::string, int> handed_out_;
};

[[nodiscard]] inline operation sum_of(std::size_t count) {
  return all_reduce{.send = {}, .recv = {}, .count = count};
}
[[nodiscard]] inline operation to(int peer, int tag = 0, std::size_t count = 4) {
  return send{.memory = {}, .count = count, .peer = rank{peer}, .tag = tag};
}
[[nodiscard]] inline operation from(int peer, int tag = 0, std::size_t count = 4) {
  return recv{.memory = {}, .count = count, .peer = rank{peer}, .tag = tag};
}

} // namespace troupe::tests
