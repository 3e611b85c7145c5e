#include "played_hierarchy.hpp"

#include <troupe/collectives/operation/signature.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <stdexcept>
#include <utility>

namespace troupe::tests {

namespace {

using memory = hierarchy_range::memory;

/// A range of a rank's memory that one step reads or writes.
struct touched {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool written = false;
  std::size_t by = 0; ///< The number of the step.
};

double given_factor(const operation& asked) {
  double value = 1;
  std::visit(
      [&](const auto& one) {
        if constexpr (requires { one.factor; }) std::memcpy(&value, one.factor.value.data(), sizeof value);
      },
      asked);
  return value;
}

double combined(reduction op, double left, double right) {
  switch (op) {
    case reduction::prod: return left * right;
    case reduction::min: return std::min(left, right);
    case reduction::max: return std::max(left, right);
    default: return left + right;
  }
}

/// Executes the steps of one rank's plan on the rank's memory.
class player {
public:
  player(played_rank& rank_memory, const operation& asked, std::size_t world_size)
    : memory_{rank_memory}, given_{given_factor(asked)}, mean_{1.0 / static_cast<double>(world_size)} {}

  /// Returns the index in the rank's memory of element \p offset of a range. Throws if the range does not have \p count
  /// elements from there on.
  [[nodiscard]] std::size_t address(const hierarchy_range& where, std::size_t offset, std::size_t count) const {
    std::size_t base = 0, room = 0;
    if (where.in == memory::send) base = memory_.send_at, room = memory_.send_count;
    if (where.in == memory::recv) base = memory_.recv_at, room = memory_.recv_count;
    if (where.in == memory::scratch) base = memory_.scratch_at, room = memory_.scratch_count;
    if (where.first + offset + count > room)
      throw std::runtime_error{"a step uses elements up to " + std::to_string(where.first + offset + count) + " of " +
                               std::to_string(room)};
    return base + where.first + offset;
  }
  [[nodiscard]] std::vector<double> read(const hierarchy_range& where, std::size_t offset, std::size_t count,
                                         std::size_t step) {
    if (count == 0) return {};
    const std::size_t begin = address(where, offset, count);
    note({begin, begin + count, false, step});
    const auto from = memory_.memory.begin() + static_cast<std::ptrdiff_t>(begin);
    return {from, from + static_cast<std::ptrdiff_t>(count)};
  }
  void write(const hierarchy_range& where, std::size_t offset, const std::vector<double>& values, std::size_t step) {
    if (values.empty()) return;
    const std::size_t begin = address(where, offset, values.size());
    note({begin, begin + values.size(), true, step});
    std::ranges::copy(values, memory_.memory.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  [[nodiscard]] double factor(hierarchy_factor which) const {
    return which == hierarchy_factor::given ? given_ : which == hierarchy_factor::mean ? mean_ : 1.0;
  }
  void begin_phase() { touched_.clear(); }

private:
  void note(const touched& now) {
    for (const touched& other : touched_)
      if (other.by != now.by && (other.written || now.written) && other.begin < now.end && now.begin < other.end)
        throw std::runtime_error{"two steps of a phase use the same memory, and one of them writes"};
    touched_.push_back(now);
  }

  played_rank& memory_;
  double given_;
  double mean_;
  std::vector<touched> touched_;
};

/// One collective of one communicator, with each member's step.
class step_match {
public:
  step_match(std::vector<player*> members, std::vector<const hierarchy_step*> steps, std::size_t number)
    : members_{std::move(members)}, steps_{std::move(steps)}, number_{number} {}

  void perform() const {
    std::visit([this](const auto& one) { (*this)(one); }, steps_.front()->what);
  }

private:
  void operator()(const all_reduce& one) const {
    const auto result = reduced([](std::size_t) { return std::size_t{0}; }, one.count, one.op);
    for (std::size_t i = 0; i < size(); ++i) write(i, 0, result);
  }
  void operator()(const reduce& one) const {
    write(at(one.root), 0, reduced([](std::size_t) { return std::size_t{0}; }, one.count, one.op));
  }
  void operator()(const broadcast& one) const {
    const auto values = read(at(one.root), 0, one.count);
    for (std::size_t i = 0; i < size(); ++i) write(i, 0, values);
  }
  void operator()(const all_gather& one) const {
    std::vector<std::vector<double>> values;
    for (std::size_t i = 0; i < size(); ++i) values.push_back(read(i, 0, one.count));
    for (std::size_t i = 0; i < size(); ++i)
      for (std::size_t from = 0; from < size(); ++from) write(i, from * one.count, values[from]);
  }
  void operator()(const reduce_scatter& one) const {
    std::vector<std::vector<double>> results;
    for (std::size_t i = 0; i < size(); ++i)
      results.push_back(reduced([&](std::size_t) { return i * one.count; }, one.count, one.op));
    for (std::size_t i = 0; i < size(); ++i) write(i, 0, results[i]);
  }
  void operator()(const all_to_all& one) const {
    std::vector<std::vector<double>> values;
    for (std::size_t i = 0; i < size(); ++i) values.push_back(read(i, 0, size() * one.count));
    for (std::size_t i = 0; i < size(); ++i)
      for (std::size_t from = 0; from < size(); ++from)
        write(i, from * one.count, slice(values[from], i * one.count, one.count));
  }
  void operator()(const gather& one) const {
    std::vector<std::vector<double>> values;
    for (std::size_t i = 0; i < size(); ++i) values.push_back(read(i, 0, one.count));
    for (std::size_t i = 0; i < size(); ++i) write(at(one.root), i * one.count, values[i]);
  }
  void operator()(const scatter& one) const {
    const auto values = read(at(one.root), 0, size() * one.count);
    for (std::size_t i = 0; i < size(); ++i) write(i, 0, slice(values, i * one.count, one.count));
  }
  void operator()(const all_gather_v& one) const {
    std::vector<std::vector<double>> values;
    for (std::size_t i = 0; i < size(); ++i) values.push_back(read(i, 0, one.recv_parts.counts[i]));
    for (std::size_t i = 0; i < size(); ++i)
      for (std::size_t from = 0; from < size(); ++from)
        write(i, std::get<all_gather_v>(steps_[i]->what).recv_parts.displacements[from], values[from]);
  }
  void operator()(const reduce_scatter_v& one) const {
    std::vector<std::vector<double>> results;
    for (std::size_t i = 0; i < size(); ++i)
      results.push_back(reduced(
          [&](std::size_t from) { return std::get<reduce_scatter_v>(steps_[from]->what).send_parts.displacements[i]; },
          one.send_parts.counts[i], one.op));
    for (std::size_t i = 0; i < size(); ++i) write(i, 0, results[i]);
  }
  void operator()(const all_to_all_v&) const {
    std::map<std::pair<std::size_t, std::size_t>, std::vector<double>> values;
    const auto step = [&](std::size_t i) -> const all_to_all_v& { return std::get<all_to_all_v>(steps_[i]->what); };
    for (std::size_t from = 0; from < size(); ++from)
      for (std::size_t to = 0; to < size(); ++to)
        values[{from, to}] = read(from, step(from).send_parts.displacements[to], step(from).send_parts.counts[to]);
    for (const auto& [ends, moved] : values)
      write(ends.second, step(ends.second).recv_parts.displacements[ends.first], moved);
  }
  void operator()(const barrier&) const {}
  template <class Other>
  void operator()(const Other&) const {
    throw std::runtime_error{"a step is not a collective"};
  }

  static std::size_t at(rank one) { return static_cast<std::size_t>(one.value()); }
  static std::vector<double> slice(const std::vector<double>& all, std::size_t first, std::size_t count) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(first);
    return {from, from + static_cast<std::ptrdiff_t>(count)};
  }
  [[nodiscard]] std::size_t size() const { return members_.size(); }
  [[nodiscard]] std::vector<double> read(std::size_t i, std::size_t offset, std::size_t count) const {
    return members_[i]->read(steps_[i]->from, offset, count, number_);
  }
  void write(std::size_t i, std::size_t offset, const std::vector<double>& values) const {
    members_[i]->write(steps_[i]->to, offset, values, number_);
  }
  template <class Offset>
  [[nodiscard]] std::vector<double> reduced(Offset offset, std::size_t count, reduction op) const {
    std::vector<double> result;
    for (std::size_t i = 0; i < size(); ++i) {
      auto values = read(i, offset(i), count);
      if (op == reduction::pre_mul_sum)
        for (double& each : values) each *= members_[i]->factor(steps_[i]->factor);
      if (i == 0) result = values;
      for (std::size_t k = 0; i > 0 && k < count; ++k) result[k] = combined(op, result[k], values[k]);
    }
    return result;
  }

  std::vector<player*> members_;
  std::vector<const hierarchy_step*> steps_;
  std::size_t number_;
};

bool is_transfer(const hierarchy_step& step) {
  return std::holds_alternative<send>(step.what) || std::holds_alternative<recv>(step.what);
}

/// Returns the ranks of each communicator of a level.
std::vector<std::vector<std::size_t>> communicators_of(const node_map& nodes, hierarchy_level level) {
  std::vector<std::vector<std::size_t>> all;
  if (level == hierarchy_level::inside) {
    for (std::size_t node = 0; node < nodes.node_count(); ++node)
      if (nodes.members(node).size() > 1) all.push_back(nodes.members(node));
    return all;
  }
  for (std::size_t index = 0; index < (nodes.is_even() ? nodes.largest() : 1); ++index) {
    auto& one = all.emplace_back();
    for (std::size_t node = 0; node < nodes.node_count(); ++node) one.push_back(nodes.members(node)[index]);
  }
  return all;
}

/// Executes one phase of one communicator.
void play_steps(const std::vector<std::size_t>& ranks, std::vector<player>& players,
                const std::vector<const hierarchy_phase*>& phases, bool backwards) {
  std::vector<player*> members;
  std::vector<std::vector<signature>> asked;
  std::vector<std::vector<const hierarchy_step*>> collectives;
  for (const std::size_t r : ranks) {
    members.push_back(&players[r]);
    asked.emplace_back();
    collectives.emplace_back();
    for (const hierarchy_step& step : phases[r]->steps) {
      asked.back().push_back(signatures_of(step.what).front());
      if (!is_transfer(step)) collectives.back().push_back(&step);
      if (std::holds_alternative<barrier>(step.what) && phases[r]->steps.size() > 1)
        throw std::runtime_error{"a barrier is launched together with other steps"};
    }
  }
  if (const error disagreement = check_agreement(asked)) throw std::runtime_error{disagreement.text};
  const std::size_t count = collectives.front().size();
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t which = backwards ? count - 1 - k : k;
    std::vector<const hierarchy_step*> steps;
    for (const auto& mine : collectives) steps.push_back(mine[which]);
    step_match{members, std::move(steps), which + 1}.perform();
  }
  std::size_t number = count + 1;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    for (const hierarchy_step& out : phases[ranks[i]]->steps)
      if (const auto* sent = std::get_if<send>(&out.what)) {
        const auto to = static_cast<std::size_t>(sent->peer.value());
        for (const hierarchy_step& in : phases[ranks[to]]->steps)
          if (const auto* got = std::get_if<recv>(&in.what);
              got != nullptr && got->peer.value() == static_cast<int>(i)) {
            members[to]->write(in.to, 0, members[i]->read(out.from, 0, sent->count, number), number);
            ++number;
          }
      }
}

void play_phase(const node_map& nodes, std::vector<player>& players, const std::vector<const hierarchy_phase*>& phases,
                bool backwards) {
  for (player& one : players) one.begin_phase();
  constexpr std::size_t copying = 1'000'000; // larger than any step's number
  for (std::size_t r = 0; r < players.size(); ++r)
    for (std::size_t k = 0; k < phases[r]->copies.size(); ++k) {
      const hierarchy_copy& one = phases[r]->copies[k];
      if (players[r].address(one.from, 0, one.count) == players[r].address(one.to, 0, one.count)) continue;
      players[r].write(one.to, 0, players[r].read(one.from, 0, one.count, copying + k), copying + k);
    }
  std::vector<bool> meets(players.size());
  for (const auto& ranks : communicators_of(nodes, phases.front()->level)) {
    for (const std::size_t r : ranks) meets[r] = true;
    play_steps(ranks, players, phases, backwards);
  }
  for (std::size_t r = 0; r < players.size(); ++r)
    if (!meets[r] && !phases[r]->steps.empty())
      throw std::runtime_error{"rank " + std::to_string(r) + " has a step where it has no communicator"};
}

} // namespace

played_outcome play(const played_case& one, const node_map& nodes, const hierarchy_terms& terms, bool backwards) {
  std::vector<hierarchy_plan> plans;
  for (std::size_t r = 0; r < nodes.size(); ++r)
    if (auto plan = compose(one.asked[r], nodes, rank{static_cast<int>(r)}, terms)) plans.push_back(std::move(*plan));
  if (plans.empty()) return {};
  if (plans.size() < nodes.size()) return {"ranks do not agree on whether to compose", true};
  for (const hierarchy_plan& each : plans)
    if (each.uses_scratch != plans.front().uses_scratch ||
        !std::ranges::equal(each.phases, plans.front().phases, {}, &hierarchy_phase::level, &hierarchy_phase::level))
      return {"ranks do not agree on phases", true};

  std::vector<played_rank> memory = one.before;
  std::vector<player> players;
  for (std::size_t r = 0; r < memory.size(); ++r) players.emplace_back(memory[r], one.asked[r], memory.size());
  try {
    for (std::size_t phase = 0; phase < plans.front().phases.size(); ++phase) {
      std::vector<const hierarchy_phase*> phases;
      for (const hierarchy_plan& each : plans) phases.push_back(&each.phases[phase]);
      play_phase(nodes, players, phases, backwards);
    }
  } catch (const std::exception& broken) {
    return {broken.what(), true};
  }
  for (std::size_t r = 0; r < memory.size(); ++r)
    for (std::size_t i = 0; i < one.after[r].size(); ++i) {
      const double wanted = one.after[r][i], seen = memory[r].memory[i];
      if (std::abs(seen - wanted) > 1e-9 * std::abs(wanted))
        return {"rank " + std::to_string(r) + ", element " + std::to_string(i) + ": " + std::to_string(wanted) +
                    " expected, " + std::to_string(seen) + " seen",
                true};
    }
  return {{}, true};
}

} // namespace troupe::tests
