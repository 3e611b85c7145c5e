// Makes test cases for hierarchy plans: all ranks' operations, their memory before, and the expected memory after.
#include "played_hierarchy.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace troupe::tests {

namespace {

constexpr std::size_t guard_zone = 3;

double start_value(std::size_t of_rank, std::size_t index) {
  return static_cast<double>((of_rank * 7 + index * 5) % 11 + 1);
}

/// Returns parts with gaps between them, in ascending order on even ranks and in descending order on odd ranks.
partition laid_out(const std::vector<std::size_t>& counts, std::size_t gap, std::size_t of_rank) {
  partition parts{.counts = counts, .displacements = std::vector<std::size_t>(counts.size())};
  std::size_t next = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::size_t which = of_rank % 2 == 0 ? i : counts.size() - 1 - i;
    parts.displacements[which] = next;
    next += counts[which] + gap;
  }
  return parts;
}

/// Builds one case. A formula gives every rank's values, so the expected results can be computed.
class case_maker {
public:
  case_maker(const case_choice& choice, std::size_t scratch_count) : choice_{choice}, scratch_count_{scratch_count} {}

  played_case make() {
    for (std::size_t r = 0; r < choice_.ranks; ++r) add_rank(r);
    for (std::size_t r = 0; r < choice_.ranks; ++r) expect(r);
    return std::move(made_);
  }

private:
  [[nodiscard]] bool is_v() const { return !choice_.counts.empty(); }
  [[nodiscard]] std::size_t count() const { return choice_.count; }
  [[nodiscard]] std::size_t size() const { return choice_.ranks; }
  [[nodiscard]] std::size_t span_of_parts() const {
    return std::accumulate(choice_.counts.begin(), choice_.counts.end(), std::size_t{0}) + size() * choice_.gap;
  }

  template <class Operation>
  [[nodiscard]] Operation asked_by(std::size_t r) const {
    Operation one;
    one.type = dtype::f64;
    if constexpr (requires { one.count; }) one.count = count();
    if constexpr (requires { one.root; }) one.root = rank{static_cast<int>(choice_.root)};
    if constexpr (requires { one.op; }) one.op = choice_.op;
    if constexpr (requires { one.factor; }) one.factor = factor::of(static_cast<double>(r + 2));
    if constexpr (requires { one.recv_parts; }) one.recv_parts = laid_out(choice_.counts, choice_.gap, r);
    if constexpr (requires { one.send_parts; }) one.send_parts = laid_out(choice_.counts, choice_.gap, r);
    return one;
  }

  /// The number of elements that a rank sends and receives. For operations in place, also the offset of one range in
  /// the other.
  struct lengths {
    std::size_t send = 0, recv = 0;
    std::size_t send_in_recv = 0, recv_in_send = 0;
    bool may_share = true;
  };

  void add_rank(std::size_t r) {
    operation asked = barrier{};
    lengths are;
    const bool is_root = r == choice_.root;
    switch (choice_.kind) {
      case 0: asked = asked_by<all_reduce>(r), are = {.send = count(), .recv = count()}; break;
      case 1: asked = asked_by<reduce>(r), are = {.send = count(), .recv = is_root ? count() : 0}; break;
      case 2: asked = asked_by<broadcast>(r), are = {.send = is_root ? count() : 0, .recv = count()}; break;
      case 3:
        asked = asked_by<all_gather>(r);
        are = {.send = count(), .recv = size() * count(), .send_in_recv = r * count()};
        break;
      case 4:
        asked = asked_by<reduce_scatter>(r);
        are = {.send = size() * count(), .recv = count(), .recv_in_send = r * count()};
        break;
      case 5:
        asked = asked_by<all_to_all>(r);
        are = {.send = size() * count(), .recv = size() * count(), .may_share = false};
        break;
      case 6:
        asked = asked_by<gather>(r);
        are = {.send = count(), .recv = is_root ? size() * count() : 0, .send_in_recv = r * count()};
        break;
      case 7:
        asked = asked_by<scatter>(r);
        are = {.send = is_root ? size() * count() : 0, .recv = count(), .recv_in_send = r * count()};
        break;
      case 8: {
        auto one = asked_by<all_gather_v>(r);
        are = {.send = choice_.counts[r], .recv = span_of_parts(), .send_in_recv = one.recv_parts.displacements[r]};
        asked = std::move(one);
        break;
      }
      case 9: {
        auto one = asked_by<reduce_scatter_v>(r);
        are = {.send = span_of_parts(), .recv = choice_.counts[r], .recv_in_send = one.send_parts.displacements[r]};
        asked = std::move(one);
        break;
      }
      default: break; // barrier
    }
    made_.asked.push_back(std::move(asked));

    played_rank mine{.memory = {}, .send_at = guard_zone, .send_count = are.send, .recv_count = are.recv};
    const bool shares = choice_.in_place && are.may_share && are.send > 0 && are.recv > 0;
    if (shares) {
      mine.recv_at = guard_zone + are.recv_in_send;
      mine.send_at = guard_zone + are.send_in_recv;
    } else {
      mine.recv_at = mine.send_at + are.send + guard_zone;
    }
    mine.scratch_at = std::max(mine.send_at + are.send, mine.recv_at + are.recv) + guard_zone;
    mine.scratch_count = scratch_count_;
    for (std::size_t i = 0; i < mine.scratch_at; ++i) mine.memory.push_back(start_value(r, i));
    mine.memory.resize(mine.scratch_at + scratch_count_, -1e6);
    made_.before.push_back(std::move(mine));
  }

  [[nodiscard]] double sent(std::size_t by, std::size_t index) const {
    const played_rank& one = made_.before[by];
    return one.memory.at(one.send_at + index);
  }
  /// Returns the reduction over all ranks r of element \p index(r) of rank r's input.
  template <class Index>
  [[nodiscard]] double reduced(Index index) const {
    const double mean = 1.0 / static_cast<double>(size());
    double result = 0;
    for (std::size_t r = 0; r < size(); ++r) {
      double value = sent(r, index(r));
      if (choice_.op == reduction::avg) value *= mean;
      if (choice_.op == reduction::pre_mul_sum) value *= static_cast<double>(r + 2);
      if (r == 0)
        result = value;
      else
        result = choice_.op == reduction::prod  ? result * value
                 : choice_.op == reduction::min ? std::min(result, value)
                 : choice_.op == reduction::max ? std::max(result, value)
                                                : result + value;
    }
    return result;
  }

  void expect(std::size_t r) {
    const played_rank& mine = made_.before[r];
    std::vector<double> after{mine.memory.begin(), mine.memory.begin() + static_cast<std::ptrdiff_t>(mine.scratch_at)};
    const auto put = [&](std::size_t index, double value) { after.at(mine.recv_at + index) = value; };
    const bool is_root = r == choice_.root;
    switch (choice_.kind) {
      case 0:
      case 1:
        for (std::size_t i = 0; i < mine.recv_count; ++i) put(i, reduced([&](std::size_t) { return i; }));
        break;
      case 2:
        for (std::size_t i = 0; i < count(); ++i) put(i, sent(choice_.root, i));
        break;
      case 3:
      case 6:
        for (std::size_t from = 0; from < size() && (choice_.kind == 3 || is_root); ++from)
          for (std::size_t i = 0; i < count(); ++i) put(from * count() + i, sent(from, i));
        break;
      case 4:
        for (std::size_t i = 0; i < count(); ++i) put(i, reduced([&](std::size_t) { return r * count() + i; }));
        break;
      case 5:
        for (std::size_t from = 0; from < size(); ++from)
          for (std::size_t i = 0; i < count(); ++i) put(from * count() + i, sent(from, r * count() + i));
        break;
      case 7:
        for (std::size_t i = 0; i < count(); ++i) put(i, sent(choice_.root, r * count() + i));
        break;
      case 8:
        for (std::size_t from = 0; from < size(); ++from)
          for (std::size_t i = 0; i < choice_.counts[from]; ++i)
            put(std::get<all_gather_v>(made_.asked[r]).recv_parts.displacements[from] + i, sent(from, i));
        break;
      case 9:
        for (std::size_t i = 0; i < choice_.counts[r]; ++i)
          put(i, reduced([&](std::size_t from) {
                return std::get<reduce_scatter_v>(made_.asked[from]).send_parts.displacements[r] + i;
              }));
        break;
      default: break;
    }
    made_.after.push_back(std::move(after));
  }

  const case_choice& choice_;
  std::size_t scratch_count_;
  played_case made_;
};

} // namespace

played_case make_case(const case_choice& choice, std::size_t scratch_count) {
  return case_maker{choice, scratch_count}.make();
}

} // namespace troupe::tests
