#include <troupe/collectives/backend/mock/mock_call.hpp>
#include <troupe/collectives/backend/mock/mock_reduce.hpp>
#include <troupe/collectives/operation/extents.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

namespace troupe {

namespace {

/// Throws for an access beyond the buffer's end, which a GPU would not report clearly.
void require_room(const extent& one) {
  const std::size_t needed = (one.first + one.count) * size_bytes(one.type);
  if (one.count > 0 && one.memory->size_bytes() < needed)
    throw exception{errc::invalid_argument, "the " + std::string{one.role} + " buffer of " +
                                                std::to_string(one.memory->size_bytes()) + " bytes is too small for " +
                                                std::to_string(needed)};
}

mock_call call_of(const operation& what, rank self, int world_size) {
  if (std::holds_alternative<copy>(what) || std::holds_alternative<group>(what) ||
      std::holds_alternative<replay>(what) || std::holds_alternative<call>(what))
    throw exception{errc::internal,
                    "a " + std::string{name_of(what)} + " must not reach a communicator as a single operation"};
  mock_call made;
  made.what = signatures_of(what).front();
  std::visit(
      [&]<class T>(const T& one) {
        if constexpr (requires { one.type; })
          if (size_bytes(one.type) == 0) throw exception{errc::invalid_argument, "unknown dtype"};
        if constexpr (requires { one.op; })
          if (to_string(one.op).empty()) throw exception{errc::invalid_argument, "unknown reduction"};
        if constexpr (requires { one.count; })
          if (one.count > SIZE_MAX / size_bytes(one.type) / static_cast<std::size_t>(world_size))
            throw exception{errc::invalid_argument, "the count exceeds any memory"};
        if constexpr (requires { one.send; }) made.send = one.send.memory.data();
        if constexpr (requires { one.recv; }) made.recv = one.recv.memory.data();
        if constexpr (std::is_same_v<T, send>) made.send = one.memory.memory.data();
        if constexpr (std::is_same_v<T, recv>) made.recv = one.memory.memory.data();
        if constexpr (requires { one.send_parts; }) made.send_at = one.send_parts.displacements;
        if constexpr (requires { one.recv_parts; }) made.recv_at = one.recv_parts.displacements;
        if constexpr (requires { one.factor; }) {
          made.factor = one.factor.value;
          made.factor_on_device = one.factor.memory.data();
        }
      },
      what);
  for (const extent& one : footprint_of(what, self, world_size).extents) require_room(one);
  return made;
}

/// Computes the collectives from the parts of all ranks.
class performance {
public:
  explicit performance(std::span<const mock_call* const> ranks)
    : ranks_{ranks}, width_{size_bytes(ranks.front()->what.type)}, count_{ranks.front()->what.count} {
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (!ranks[i]->is_remote) here_.push_back(i);
  }

  void operator()(const all_reduce&) const {
    reduce_into({}, count_, [](std::size_t) { return true; });
  }
  void operator()(const reduce&) const {
    reduce_into({}, count_, [&](std::size_t rank) { return rank == root(); });
  }
  void operator()(const broadcast&) const {
    for (const std::size_t to : here_) move(root(), 0, to, 0, count_);
  }
  void operator()(const all_gather&) const {
    for (const std::size_t to : here_)
      for (std::size_t from = 0; from < size(); ++from) move(from, 0, to, from * count_, count_);
  }
  void operator()(const reduce_scatter&) const {
    for (const std::size_t to : here_)
      reduce_into(std::vector<std::size_t>(size(), to * count_), count_, [&](std::size_t rank) { return rank == to; });
  }
  void operator()(const all_to_all&) const {
    for (const std::size_t to : here_)
      for (std::size_t from = 0; from < size(); ++from) move(from, to * count_, to, from * count_, count_);
  }
  void operator()(const gather&) const {
    if (!ranks_[root()]->is_remote)
      for (std::size_t from = 0; from < size(); ++from) move(from, 0, root(), from * count_, count_);
  }
  void operator()(const scatter&) const {
    for (const std::size_t to : here_) move(root(), to * count_, to, 0, count_);
  }
  void operator()(const all_gather_v&) const {
    for (const std::size_t to : here_)
      for (std::size_t from = 0; from < size(); ++from)
        move(from, 0, to, ranks_[to]->recv_at[from], ranks_[to]->what.recv_counts[from]);
  }
  void operator()(const reduce_scatter_v&) const {
    for (const std::size_t to : here_) {
      std::vector<std::size_t> from;
      for (const mock_call* one : ranks_) from.push_back(one->send_at[to]);
      reduce_into(from, ranks_.front()->what.send_counts[to], [&](std::size_t rank) { return rank == to; });
    }
  }
  void operator()(const gather_v&) const {
    const mock_call& to = *ranks_[root()];
    for (std::size_t from = 0; from < size() && !to.is_remote; ++from)
      move(from, 0, root(), to.recv_at[from], to.what.recv_counts[from]);
  }
  void operator()(const scatter_v&) const {
    const mock_call& from = *ranks_[root()];
    for (const std::size_t to : here_) move(root(), from.send_at[to], to, 0, from.what.send_counts[to]);
  }
  void operator()(const all_to_all_v&) const {
    for (const std::size_t to : here_)
      for (std::size_t from = 0; from < size(); ++from)
        move(from, ranks_[from]->send_at[to], to, ranks_[to]->recv_at[from], ranks_[to]->what.recv_counts[from]);
  }
  template <class Other>
  void operator()(const Other&) const {} // a barrier ends when all ranks have arrived

private:
  [[nodiscard]] std::size_t size() const { return ranks_.size(); }
  [[nodiscard]] std::size_t root() const { return static_cast<std::size_t>(ranks_.front()->what.root.value()); }
  [[nodiscard]] const std::byte* sent_by(std::size_t rank, std::size_t first) const {
    return ranks_[rank]->send + (first - ranks_[rank]->send_first) * width_;
  }

  void move(std::size_t from, std::size_t from_first, std::size_t to, std::size_t to_first, std::size_t count) const {
    if (count == 0) return;
    std::memmove(ranks_[to]->recv + to_first * width_, sent_by(from, from_first), count * width_);
  }

  /// \p firsts: the first element of each rank; empty means 0 for all.
  template <class Receives>
  void reduce_into(const std::vector<std::size_t>& firsts, std::size_t count, Receives receives) const {
    if (count == 0 || std::ranges::none_of(here_, receives)) return;
    std::vector<reduce_part> parts;
    for (std::size_t i = 0; i < size(); ++i) {
      const mock_call& one = *ranks_[i];
      reduce_part part{.send = sent_by(i, firsts.empty() ? 0 : firsts[i]),
                       .recv = receives(i) ? one.recv : nullptr,
                       .factor = one.factor};
      if (one.factor_on_device != nullptr) std::memcpy(part.factor.data(), one.factor_on_device, width_);
      parts.push_back(part);
    }
    reduce_parts(parts, count, ranks_.front()->what.type, ranks_.front()->what.op);
  }

  std::span<const mock_call* const> ranks_;
  std::vector<std::size_t> here_; ///< The ranks whose results are computed.
  std::size_t width_;
  std::size_t count_;
};

/// Finds the elements that rank \p from gives to rank \p to.
struct elements_given {
  const mock_call& call;
  std::size_t from;
  std::size_t to;

  element_range operator()(const all_reduce&) const { return {0, call.what.count}; }
  element_range operator()(const reduce&) const { return to == root() ? all() : element_range{}; }
  element_range operator()(const broadcast&) const { return from == root() ? all() : element_range{}; }
  element_range operator()(const all_gather&) const { return all(); }
  element_range operator()(const reduce_scatter&) const { return part(); }
  element_range operator()(const all_to_all&) const { return part(); }
  element_range operator()(const gather&) const { return to == root() ? all() : element_range{}; }
  element_range operator()(const scatter&) const { return from == root() ? part() : element_range{}; }
  element_range operator()(const all_gather_v&) const { return {0, at(call.what.recv_counts, from)}; }
  element_range operator()(const reduce_scatter_v&) const { return part_v(); }
  element_range operator()(const gather_v&) const {
    return {0, to == root() ? at(call.what.recv_counts, from) : std::size_t{0}};
  }
  element_range operator()(const scatter_v&) const { return from == root() ? part_v() : element_range{}; }
  element_range operator()(const all_to_all_v&) const { return part_v(); }
  template <class Other>
  element_range operator()(const Other&) const {
    return {};
  }

private:
  static std::size_t at(const std::vector<std::size_t>& of_ranks, std::size_t rank) {
    return rank < of_ranks.size() ? of_ranks[rank] : 0;
  }
  [[nodiscard]] std::size_t root() const { return static_cast<std::size_t>(call.what.root.value()); }
  [[nodiscard]] element_range all() const { return {0, call.what.count}; }
  [[nodiscard]] element_range part() const { return {to * call.what.count, call.what.count}; }
  [[nodiscard]] element_range part_v() const { return {at(call.send_at, to), at(call.what.send_counts, to)}; }
};

} // namespace

std::vector<mock_call> calls_of(const operation& what, rank self, int world_size) {
  std::vector<mock_call> all;
  if (const auto* several = std::get_if<group>(&what))
    for (const operation& part : several->parts) all.push_back(call_of(part, self, world_size));
  else
    all.push_back(call_of(what, self, world_size));
  return all;
}

element_range elements_for(const mock_call& call, std::size_t from, std::size_t to) {
  element_range found;
  visit_kind(call.what.kind, [&](const auto& kind) { found = elements_given{call, from, to}(kind); });
  return found;
}

void perform(std::span<const mock_call* const> ranks) {
  visit_kind(ranks.front()->what.kind, performance{ranks});
}

void perform_transfer(const mock_call& from, const mock_call& to) {
  const std::size_t length = from.what.count * size_bytes(from.what.type);
  if (length > 0) std::memmove(to.recv, from.send, length);
}

} // namespace troupe
