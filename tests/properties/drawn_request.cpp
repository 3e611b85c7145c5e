#include "properties/drawn_request.hpp"

#include <troupe/collectives/backend/host_reduce.hpp>

#include <rapidcheck.h>

#include <algorithm>
#include <functional>
#include <optional>

namespace troupe::tests {

namespace {

template <class Operation>
const std::size_t kind_of = operation{Operation{}}.index();

std::size_t to_index(int value) {
  return static_cast<std::size_t>(value);
}

/// 0, 1 or 2, so that what 4 ranks make of it, also on the way, is exact in three significant bits.
double value_at(int of_rank, std::size_t index) {
  return static_cast<double>((index + index / 3 + 2 * to_index(of_rank)) % 3);
}

double factor_of(int of_rank) {
  return of_rank == 0 ? 2 : of_rank == 1 ? 0 : 1;
}

/// The reduction of what each rank has at an index of its own.
double combine(reduction op, int world_size, dtype type, const std::function<std::size_t(int rank)>& index) {
  double result = op == reduction::prod ? 1 : 0;
  for (int r = 0; r < world_size; ++r) {
    const double mine = value_at(r, index(r));
    switch (op) {
      case reduction::sum:
      case reduction::avg: result += mine; break;
      case reduction::pre_mul_sum: result += mine * factor_of(r); break;
      case reduction::prod: result *= mine; break;
      case reduction::min: result = r == 0 ? mine : std::min(result, mine); break;
      case reduction::max: result = r == 0 ? mine : std::max(result, mine); break;
    }
  }
  if (op != reduction::avg) return result;
  if (!is_integer(type)) return result / world_size;
  const int whole = static_cast<int>(result) / world_size;
  return whole;
}

/// One part as one rank sees it.
class part_view {
public:
  part_view(const drawn_part& what, int self, int world_size)
    : what_{what}, self_{self}, size_{world_size}, n_{to_index(world_size)}, me_{to_index(self)} {}

  [[nodiscard]] bool is_root() const { return self_ == what_.root; }
  [[nodiscard]] bool is_target() const { return self_ == what_.to; }
  template <class Operation>
  [[nodiscard]] bool is() const {
    return what_.kind == kind_of<Operation>;
  }

  /// The parts of a v-form's buffer; each rank puts them elsewhere.
  [[nodiscard]] partition parts_of(std::vector<std::size_t> counts, int of_rank) const {
    partition made = partition::packed(std::move(counts));
    for (std::size_t i = 0; i < n_; ++i) made.displacements[i] += i * (to_index(of_rank) % 2);
    return made;
  }
  [[nodiscard]] partition send_parts(int of_rank) const {
    if (!is<all_to_all_v>()) return parts_of(what_.counts, of_rank);
    std::vector<std::size_t> row;
    for (std::size_t to = 0; to < n_; ++to) row.push_back(what_.counts[to_index(of_rank) * n_ + to]);
    return parts_of(std::move(row), of_rank);
  }
  [[nodiscard]] partition recv_parts(int of_rank) const {
    if (!is<all_to_all_v>()) return parts_of(what_.counts, of_rank);
    std::vector<std::size_t> column;
    for (std::size_t from = 0; from < n_; ++from) column.push_back(what_.counts[from * n_ + to_index(of_rank)]);
    return parts_of(std::move(column), of_rank);
  }
  [[nodiscard]] static std::size_t end_of(const partition& parts) {
    std::size_t end = 0;
    for (std::size_t i = 0; i < parts.counts.size(); ++i) end = std::max(end, parts.displacements[i] + parts.counts[i]);
    return end;
  }

  /// Elements of the send range.
  [[nodiscard]] std::size_t sent() const {
    const std::size_t c = what_.count;
    if (is<broadcast>() || is<send>()) return is_root() ? c : 0;
    if (is<scatter>()) return is_root() ? n_ * c : 0;
    if (is<reduce_scatter>() || is<all_to_all>()) return n_ * c;
    if (is<all_gather_v>() || is<gather_v>()) return what_.counts[me_];
    if (is<scatter_v>()) return is_root() ? end_of(send_parts(self_)) : 0;
    if (is<reduce_scatter_v>() || is<all_to_all_v>()) return end_of(send_parts(self_));
    return c;
  }
  [[nodiscard]] std::size_t received() const {
    const std::size_t c = what_.count;
    if (is<reduce>()) return is_root() ? c : 0;
    if (is<send>()) return is_target() ? c : 0;
    if (is<gather>()) return is_root() ? n_ * c : 0;
    if (is<all_gather>() || is<all_to_all>()) return n_ * c;
    if (is<all_gather_v>() || is<all_to_all_v>()) return end_of(recv_parts(self_));
    if (is<gather_v>()) return is_root() ? end_of(recv_parts(self_)) : 0;
    if (is<reduce_scatter_v>() || is<scatter_v>()) return what_.counts[me_];
    return c;
  }
  /// Where the send range begins behind the receive range, in place.
  [[nodiscard]] std::optional<std::ptrdiff_t> in_place() const {
    const auto own = static_cast<std::ptrdiff_t>(me_ * what_.count);
    if (is<all_reduce>()) return 0;
    if (is<reduce>() || is<broadcast>()) return is_root() ? std::optional<std::ptrdiff_t>{0} : std::nullopt;
    if (is<all_gather>()) return own;
    if (is<reduce_scatter>()) return -own;
    if (is<gather>()) return is_root() ? std::optional{own} : std::nullopt;
    if (is<scatter>()) return is_root() ? std::optional{-own} : std::nullopt;
    if ((is<gather_v>() || is<scatter_v>()) && !is_root()) return std::nullopt;
    if (is<all_gather_v>() || is<gather_v>()) return static_cast<std::ptrdiff_t>(recv_parts(self_).displacements[me_]);
    if (is<reduce_scatter_v>() || is<scatter_v>())
      return -static_cast<std::ptrdiff_t>(send_parts(self_).displacements[me_]);
    return std::nullopt;
  }

  /// Calls \p write for every element of the receive range that is written.
  void results(const std::function<void(std::size_t index, double value)>& write) const {
    const std::size_t c = what_.count;
    const auto each = [&](std::size_t count, auto value) {
      for (std::size_t i = 0; i < count; ++i) write(i, value(i));
    };
    const auto reduced = [&](auto index) { return combine(what_.op, size_, what_.type, index); };
    const auto blocks = [&](auto value) {
      for (int b = 0; b < size_; ++b)
        for (std::size_t i = 0; i < c; ++i) write(to_index(b) * c + i, value(b, i));
    };
    if (is<all_reduce>() || (is<reduce>() && is_root()))
      each(c, [&](std::size_t i) { return reduced([i](int) { return i; }); });
    if (is<broadcast>() || (is<send>() && is_target())) each(c, [&](std::size_t i) { return value_at(what_.root, i); });
    if (is<all_gather>() || (is<gather>() && is_root())) blocks(value_at);
    if (is<reduce_scatter>()) each(c, [&](std::size_t i) { return reduced([&](int) { return me_ * c + i; }); });
    if (is<all_to_all>()) blocks([&](int b, std::size_t i) { return value_at(b, me_ * c + i); });
    if (is<scatter>()) each(c, [&](std::size_t i) { return value_at(what_.root, me_ * c + i); });
    if (is<reduce_scatter_v>())
      each(what_.counts[me_],
           [&](std::size_t i) { return reduced([&](int r) { return send_parts(r).displacements[me_] + i; }); });
    if (is<scatter_v>())
      each(what_.counts[me_],
           [&](std::size_t i) { return value_at(what_.root, send_parts(what_.root).displacements[me_] + i); });
    if (is<all_gather_v>() || is<all_to_all_v>() || (is<gather_v>() && is_root())) {
      const partition mine = recv_parts(self_);
      for (int b = 0; b < size_; ++b) {
        const std::size_t from = is<all_to_all_v>() ? send_parts(b).displacements[me_] : 0;
        for (std::size_t i = 0; i < mine.counts[to_index(b)]; ++i)
          write(mine.displacements[to_index(b)] + i, value_at(b, from + i));
      }
    }
  }

  /// What this rank is asked for the part: one operation, or the ends of a transfer that are here.
  [[nodiscard]] std::vector<operation> operations(const buffer& out, const buffer& in) const {
    const rank root{what_.root};
    factor times;
    if (what_.op == reduction::pre_mul_sum) store_element(times.value.data(), what_.type, factor_of(self_));
    const auto c = what_.count;
    const auto type = what_.type;
    if (is<all_reduce>()) return {all_reduce{out, in, c, type, what_.op, times}};
    if (is<reduce>()) return {reduce{out, in, c, type, what_.op, root, times}};
    if (is<broadcast>()) return {broadcast{out, in, c, type, root}};
    if (is<all_gather>()) return {all_gather{out, in, c, type}};
    if (is<reduce_scatter>()) return {reduce_scatter{out, in, c, type, what_.op, times}};
    if (is<all_to_all>()) return {all_to_all{out, in, c, type}};
    if (is<gather>()) return {gather{out, in, c, type, root}};
    if (is<scatter>()) return {scatter{out, in, c, type, root}};
    if (is<all_gather_v>()) return {all_gather_v{out, in, recv_parts(self_), type}};
    if (is<reduce_scatter_v>()) return {reduce_scatter_v{out, in, send_parts(self_), type, what_.op, times}};
    if (is<gather_v>()) return {gather_v{out, in, recv_parts(self_), type, root}};
    if (is<scatter_v>()) return {scatter_v{out, in, send_parts(self_), type, root}};
    if (is<all_to_all_v>()) return {all_to_all_v{out, in, send_parts(self_), recv_parts(self_), type}};
    std::vector<operation> ends;
    if (is_root()) ends.emplace_back(send{out, c, type, rank{what_.to}, what_.tag});
    if (is_target()) ends.emplace_back(recv{in, c, type, root, what_.tag});
    return ends;
  }

private:
  const drawn_part& what_;
  int self_;
  int size_;
  std::size_t n_;
  std::size_t me_;
};

/// One rank's memory, handed out from the front.
class arena {
public:
  explicit arena(const buffer& memory) : memory_{memory} {}

  /// Room for \p count elements, aligned to them and with at least 8 bytes of guard in front.
  [[nodiscard]] std::size_t take(std::size_t count, dtype type) {
    const std::size_t width = size_bytes(type);
    const std::size_t begin = (used_ + 8 + width - 1) / width * width;
    used_ = begin + count * width;
    RC_ASSERT(used_ <= memory_.size_bytes());
    return begin;
  }
  [[nodiscard]] buffer slice(std::size_t begin, std::size_t count, dtype type) const {
    return count == 0 ? buffer{} : memory_.slice(begin, count * size_bytes(type));
  }

private:
  const buffer& memory_;
  std::size_t used_ = 0;
};

/// Ends of transfers first on every second rank: sends and receives have to meet wherever they stand.
void put_transfers_first(std::vector<operation>& parts) {
  std::stable_partition(parts.begin(), parts.end(), [](const operation& one) {
    return std::holds_alternative<send>(one) || std::holds_alternative<recv>(one);
  });
}

} // namespace

std::vector<drawn_part> draw_parts(int world_size, int most) {
  std::vector<drawn_part> parts;
  const int count = *rc::gen::inRange(0, most + 1);
  const auto size = to_index(world_size);
  for (int i = 0; i < count; ++i) {
    drawn_part one;
    one.kind = *rc::gen::inRange<std::size_t>(0, kind_of<send> + 1);
    one.type = *rc::gen::elementOf(std::vector<dtype>(std::begin(all_dtypes), std::end(all_dtypes)));
    one.op = *rc::gen::elementOf(std::vector<reduction>(std::begin(all_reductions), std::end(all_reductions)));
    // A third of a float is not exact, and one rank alone has no pre_mul_sum.
    if (one.op == reduction::avg && world_size == 3 && !is_integer(one.type)) one.op = reduction::sum;
    if (one.op == reduction::pre_mul_sum && world_size == 1) one.op = reduction::sum;
    one.count = *rc::gen::inRange<std::size_t>(0, 20);
    one.root = *rc::gen::inRange(0, world_size);
    one.to = *rc::gen::inRange(0, world_size);
    one.tag = *rc::gen::inRange(0, 3);
    one.in_place = *rc::gen::arbitrary<bool>();
    const std::size_t pairs = one.kind == kind_of<all_to_all_v> ? size * size : size;
    one.counts = *rc::gen::container<std::vector<std::size_t>>(pairs, rc::gen::inRange<std::size_t>(0, 9));
    parts.push_back(std::move(one));
  }
  return parts;
}

drawn_request lay_out(const std::vector<drawn_part>& parts, const std::vector<buffer>& arenas, bool bare) {
  drawn_request made;
  const auto world_size = static_cast<int>(arenas.size());
  for (int self = 0; self < world_size; ++self) {
    const buffer& memory = arenas[to_index(self)];
    arena place{memory};
    std::vector<std::byte> before(memory.size_bytes(), std::byte{0xA5});
    std::vector<operation> mine;
    std::vector<std::function<void(std::vector<std::byte>&)>> writes;
    for (const drawn_part& part : parts) {
      const part_view view{part, self, world_size};
      const dtype type = part.type;
      const std::size_t width = size_bytes(type);
      std::size_t out = 0;
      std::size_t in = 0;
      if (const auto offset = view.in_place(); offset && part.in_place) {
        const auto distance = static_cast<std::size_t>(std::abs(*offset)) * width;
        const std::size_t both = place.take(std::max(view.sent(), view.received()), type);
        out = both + (*offset > 0 ? distance : 0);
        in = both + (*offset < 0 ? distance : 0);
      } else {
        out = place.take(view.sent(), type);
        in = place.take(view.received(), type);
      }
      for (std::size_t i = 0; i < view.sent(); ++i)
        store_element(before.data() + out + i * width, type, value_at(self, i));
      writes.emplace_back([view, in, width, type](std::vector<std::byte>& after) {
        view.results(
            [&](std::size_t index, double value) { store_element(after.data() + in + index * width, type, value); });
      });
      for (operation& one :
           view.operations(place.slice(out, view.sent(), type), place.slice(in, view.received(), type)))
        mine.push_back(std::move(one));
    }
    std::vector<std::byte> after = before;
    for (const auto& write : writes) write(after);
    made.before.push_back(std::move(before));
    made.after.push_back(std::move(after));
    if (self % 2 == 1) put_transfers_first(mine);
    if (bare && parts.size() == 1 && mine.size() == 1)
      made.asked.push_back(std::move(mine.front()));
    else
      made.asked.emplace_back(group{std::move(mine)});
  }
  return made;
}

bool plant_mismatch(std::vector<operation>& asked) {
  struct place {
    std::size_t rank;
    std::size_t part;
  };
  std::vector<place> places;
  for (std::size_t r = 0; r < asked.size(); ++r)
    if (const auto* several = std::get_if<group>(&asked[r]))
      for (std::size_t i = 0; i < several->parts.size(); ++i) places.push_back({r, i});
    else
      places.push_back({r, 0});
  if (places.empty()) return false;
  const place chosen = places[*rc::gen::inRange<std::size_t>(0, places.size())];
  auto* several = std::get_if<group>(&asked[chosen.rank]);
  operation& target = several != nullptr ? several->parts[chosen.part] : asked[chosen.rank];

  std::vector<std::function<void()>> changes;
  const auto world_size = static_cast<int>(asked.size());
  const auto turned = [world_size](rank one) { return rank{(one.value() + 1) % world_size}; };
  std::visit(
      [&](auto& what) {
        if constexpr (requires { what.type; })
          changes.emplace_back([&] { what.type = what.type == dtype::u8 ? dtype::f64 : dtype::u8; });
        if constexpr (requires { what.count; }) {
          changes.emplace_back([&] { ++what.count; });
          if (what.count > 0) changes.emplace_back([&] { --what.count; });
        }
        if constexpr (requires { what.op; })
          changes.emplace_back([&] { what.op = what.op == reduction::sum ? reduction::max : reduction::sum; });
        if constexpr (requires { what.root; }) changes.emplace_back([&] { what.root = turned(what.root); });
        if constexpr (requires { what.peer; }) changes.emplace_back([&] { what.peer = turned(what.peer); });
        if constexpr (requires { what.tag; }) changes.emplace_back([&] { ++what.tag; });
        const auto count_of = [&](partition& parts) {
          const auto at = *rc::gen::inRange<std::size_t>(0, parts.counts.size());
          changes.emplace_back([&parts, at] { ++parts.counts[at]; });
        };
        if constexpr (requires { what.send_parts; }) count_of(what.send_parts);
        if constexpr (requires { what.recv_parts; }) count_of(what.recv_parts);
      },
      target);
  const auto change = *rc::gen::inRange<std::size_t>(0, changes.size() + 1);
  if (change < changes.size())
    changes[change]();
  else if (several != nullptr)
    several->parts.erase(several->parts.begin() + static_cast<std::ptrdiff_t>(chosen.part));
  else
    asked[chosen.rank] = barrier{};
  return true;
}

} // namespace troupe::tests
