#include <troupe/collectives/backend/host_reduce.hpp>
#include <troupe/collectives/backend/mock/mock_call.hpp>
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
      std::holds_alternative<replay>(what) || std::holds_alternative<call>(what) || std::holds_alternative<agree>(what))
    throw exception{errc::internal,
                    std::string{name_of(what)} + " must not reach a communicator as a single operation"};
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

std::size_t value_at(const std::vector<std::size_t>& of_ranks, std::size_t rank) {
  return rank < of_ranks.size() ? of_ranks[rank] : 0;
}

} // namespace

element_range sent_part(const mock_call& call, std::size_t to) {
  if (call.what.send_counts.empty()) return {to * call.what.count, call.what.count};
  return {value_at(call.send_at, to), value_at(call.what.send_counts, to)};
}

element_range received_part(const mock_call& call, std::size_t from) {
  if (call.what.recv_counts.empty()) return {from * call.what.count, call.what.count};
  return {value_at(call.recv_at, from), value_at(call.what.recv_counts, from)};
}

namespace {

template <class Operation, class... Others>
constexpr bool is_one_of = (std::is_same_v<Operation, Others> || ...);

/// Computes the collectives from the parts of all ranks.
class performance {
public:
  explicit performance(std::span<const mock_call* const> ranks)
    : ranks_{ranks}, width_{size_bytes(ranks.front()->what.type)}, count_{ranks.front()->what.count} {
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (!ranks[i]->is_remote) here_.push_back(i);
  }

  /// Moves or reduces the data that each rank of this process receives. A barrier moves none.
  template <class Operation>
  void operator()(const Operation&) const {
    for (const std::size_t to : here_) {
      if constexpr (is_one_of<Operation, all_gather, all_gather_v>) gather_at(to);
      if constexpr (is_one_of<Operation, gather, gather_v>)
        if (to == root()) gather_at(to);
      if constexpr (is_one_of<Operation, broadcast>) move(root(), 0, to, {0, count_});
      if constexpr (is_one_of<Operation, scatter, scatter_v>) {
        const element_range part = sent_part(*ranks_[root()], to);
        move(root(), part.first, to, {0, part.count});
      }
      if constexpr (is_one_of<Operation, all_to_all, all_to_all_v>)
        for (std::size_t from = 0; from < size(); ++from)
          move(from, sent_part(*ranks_[from], to).first, to, received_part(*ranks_[to], from));
      if constexpr (is_one_of<Operation, reduce_scatter, reduce_scatter_v>) {
        std::vector<std::size_t> firsts;
        for (const mock_call* one : ranks_) firsts.push_back(sent_part(*one, to).first);
        reduce_into(firsts, sent_part(*ranks_.front(), to).count, [&](std::size_t rank) { return rank == to; });
      }
    }
  }
  void operator()(const all_reduce&) const {
    reduce_into({}, count_, [](std::size_t) { return true; });
  }
  void operator()(const reduce&) const {
    reduce_into({}, count_, [&](std::size_t rank) { return rank == root(); });
  }

private:
  [[nodiscard]] std::size_t size() const { return ranks_.size(); }
  [[nodiscard]] std::size_t root() const { return static_cast<std::size_t>(ranks_.front()->what.root.value()); }
  [[nodiscard]] const std::byte* sent_by(std::size_t rank, std::size_t first) const {
    return ranks_[rank]->send + (first - ranks_[rank]->send_first) * width_;
  }

  void move(std::size_t from, std::size_t first, std::size_t to, element_range part) const {
    if (part.count == 0) return;
    std::memmove(ranks_[to]->recv + part.first * width_, sent_by(from, first), part.count * width_);
  }
  void gather_at(std::size_t to) const {
    for (std::size_t from = 0; from < size(); ++from) move(from, 0, to, received_part(*ranks_[to], from));
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
  const auto root = static_cast<std::size_t>(call.what.root.value());
  const element_range all{0, received_part(call, from).count};
  element_range found;
  visit_kind(call.what.kind, [&]<class Operation>(const Operation&) {
    if constexpr (is_one_of<Operation, all_reduce, all_gather, all_gather_v>) found = all;
    if constexpr (is_one_of<Operation, broadcast>)
      if (from == root) found = all;
    if constexpr (is_one_of<Operation, reduce, gather, gather_v>)
      if (to == root) found = all;
    if constexpr (is_one_of<Operation, scatter, scatter_v>)
      if (from == root) found = sent_part(call, to);
    if constexpr (is_one_of<Operation, reduce_scatter, reduce_scatter_v, all_to_all, all_to_all_v>)
      found = sent_part(call, to);
  });
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
