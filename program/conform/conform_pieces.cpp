#include <troupe/program/conform/conform_pieces.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::program {

/// Returns 0 or an odd number of elements, which is not a multiple of 16 bytes for any dtype.
[[nodiscard]] inline std::size_t draw_shift(draws& draw, bool unaligned) {
  return unaligned ? 2 * draw.below(4) + 1 : 0;
}

inline constexpr std::size_t first_limit = 1U
                                           << 14U; ///< Limit of the index in the reference values where a case begins.

/// A slice of one of a piece's ranges.
struct place {
  std::optional<std::size_t> range{}; ///< Empty for a buffer without memory.
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t width = 0;

  [[nodiscard]] buffer in(std::span<const buffer> buffers) const {
    return range ? buffers[*range].slice(first * width, count * width) : buffer{};
  }
};

/// One argument of an operation: its length and its expected contents.
struct argument {
  std::size_t count = 0;
  std::vector<value_part> parts{};
};

struct places {
  place send{};
  place recv{};
};

/// Whether an operation takes parts of any size in place of one count.
template <class Operation>
inline constexpr bool is_v_form = !requires(Operation one) {
  one.count;
};

/// Common functions of the makers of all collectives.
class piece_builder {
public:
  explicit piece_builder(const piece_spec& spec)
    : spec_{spec}, draw_{spec.seed}, first_{draw_.below(first_limit)}, width_{size_bytes(spec.values.type)} {}

  [[nodiscard]] int ranks() const { return spec_.ranks; }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(spec_.ranks); }
  [[nodiscard]] std::size_t count() const { return spec_.count; }
  [[nodiscard]] dtype type() const { return spec_.values.type; }
  [[nodiscard]] reduction op() const { return spec_.values.op; }
  [[nodiscard]] int root() { return spec_.root ? *spec_.root : static_cast<int>(draw_.below(size())); }
  [[nodiscard]] draws& draw() { return draw_; }

  /// Returns \p count elements of \p from's input, beginning with its element \p at, or of the result.
  [[nodiscard]] value_part values(std::optional<int> from, std::size_t count, std::size_t at = 0,
                                  std::size_t first = 0) const {
    return {.first = first, .count = count, .from = from, .from_first = first_ + at};
  }
  [[nodiscard]] argument input(int from, std::size_t count) const { return {count, {values(from, count)}}; }
  [[nodiscard]] argument result(std::size_t count, std::size_t at = 0) const {
    return {count, {values(std::nullopt, count, at)}};
  }

  /// Adds both arguments of \p owner: two ranges or, in place, one range in which the send argument begins \p send_at
  /// elements behind the recv argument.
  [[nodiscard]] places arguments(int owner, argument send, argument recv, std::ptrdiff_t send_at = 0) {
    if (!spec_.in_place) return {add(owner, "send", std::move(send), {}), add(owner, "recv", {}, std::move(recv))};
    const std::size_t send_first = send_at > 0 ? static_cast<std::size_t>(send_at) : 0;
    const std::size_t recv_first = send_at < 0 ? static_cast<std::size_t>(-send_at) : 0;
    conform_range both{.owner = owner,
                       .role = "send and recv",
                       .values = spec_.values,
                       .count = std::max(send_first + send.count, recv_first + recv.count),
                       .shift = draw_shift(draw_, spec_.unaligned)};
    both.before = moved(std::move(send.parts), send_first);
    both.after = moved(std::move(recv.parts), recv_first);
    const std::size_t index = add(std::move(both));
    return {{index, send_first, send.count, width_}, {index, recv_first, recv.count, width_}};
  }

  /// Adds a used and an unused argument. The unused one has no memory, or memory that must stay unchanged.
  [[nodiscard]] places send_only(int owner, argument send) {
    const place used = add(owner, "send", std::move(send), {});
    if (spec_.in_place) return {used, used};
    return {used, draw_.below(2) == 0 ? place{} : add(owner, "unused recv", {spec_.count, {}}, {})};
  }
  [[nodiscard]] places recv_only(int owner, argument recv) {
    const place used = add(owner, "recv", {}, std::move(recv));
    if (spec_.in_place) return {used, used};
    return {draw_.below(2) == 0 ? place{} : add(owner, "unused send", {spec_.count, {}}, {}), used};
  }

  [[nodiscard]] place add(int owner, std::string_view role, argument before, argument after) {
    const std::size_t length = std::max(before.count, after.count);
    return {add({.owner = owner,
                 .role = role,
                 .values = spec_.values,
                 .count = length,
                 .shift = draw_shift(draw_, spec_.unaligned),
                 .before = std::move(before.parts),
                 .after = std::move(after.parts)}),
            0, length, width_};
  }

  /// Returns \p owner's factor, by value or in device memory of its own.
  [[nodiscard]] std::function<factor(std::span<const buffer>)> factor_of(int owner) {
    if (spec_.values.op != reduction::pre_mul_sum) return [](auto) { return factor{}; };
    if (!spec_.factor_on_device)
      return [made = reference_factor(type(), owner, spec_.values.kind)](auto) { return made; };
    const std::size_t index = add({.owner = owner,
                                   .role = "factor",
                                   .values = spec_.values,
                                   .count = 1,
                                   .shift = draw_shift(draw_, spec_.unaligned),
                                   .factor_of = owner});
    return [index](std::span<const buffer> buffers) { return factor::on_device(buffers[index]); };
  }

  void step(int rank, conform_maker make) { piece_.steps.push_back({rank, std::move(make)}); }
  [[nodiscard]] conform_piece finish() { return std::move(piece_); }

  /// Returns parts of these sizes with gaps between them, in ascending or descending order.
  [[nodiscard]] partition spread(std::vector<std::size_t> counts) {
    if (spec_.even) return partition::packed(std::move(counts));
    partition made{std::move(counts), {}};
    made.displacements.resize(made.counts.size());
    const bool descending = draw_.below(2) == 1;
    std::size_t next = draw_.below(4);
    for (std::size_t i = 0; i < made.counts.size(); ++i) {
      const std::size_t at = descending ? made.counts.size() - 1 - i : i;
      made.displacements[at] = next;
      next += made.counts[at] + draw_.below(4);
    }
    return made;
  }
  /// Returns uneven sizes up to count(). One of them equals count(); if there are several, one is 0.
  [[nodiscard]] std::vector<std::size_t> uneven() {
    std::vector<std::size_t> counts(size(), count());
    if (spec_.even) return counts;
    for (std::size_t& one : counts) one = draw_.below(count() + 1);
    const std::size_t longest = draw_.below(size());
    counts[longest] = count();
    if (size() > 1) counts[(longest + 1 + draw_.below(size() - 1)) % size()] = 0;
    return counts;
  }
  /// Returns the parts of an Operation: uneven() ones with gaps in a v-form, else count() elements for each rank.
  template <class Operation>
  [[nodiscard]] partition parts_for() {
    return is_v_form<Operation> ? spread(uneven()) : partition::packed(std::vector(size(), count()));
  }
  /// Returns \p parts as an Operation takes them: a v-form as a partition, the others as one count.
  template <class Operation>
  [[nodiscard]] auto length_of(const partition& parts) const {
    if constexpr (is_v_form<Operation>)
      return parts;
    else
      return count();
  }
  /// Returns the input of \p from, in \p parts.
  [[nodiscard]] argument input(int from, const partition& parts) const {
    argument all{extent(parts), {}};
    for (std::size_t q = 0; q < size(); ++q)
      all.parts.push_back(values(from, parts.counts[q], parts.displacements[q], parts.displacements[q]));
    return all;
  }
  /// Returns the front of each rank's input, as the ranks' \p parts.
  [[nodiscard]] argument gathered(const partition& parts) const {
    argument all{extent(parts), {}};
    for (std::size_t q = 0; q < size(); ++q)
      all.parts.push_back(values(static_cast<int>(q), parts.counts[q], 0, parts.displacements[q]));
    return all;
  }
  [[nodiscard]] static std::size_t extent(const partition& parts) {
    std::size_t end = 0;
    for (std::size_t i = 0; i < parts.counts.size(); ++i) end = std::max(end, parts.displacements[i] + parts.counts[i]);
    return end;
  }

private:
  static std::vector<value_part> moved(std::vector<value_part> parts, std::size_t by) {
    for (value_part& one : parts) one.first += by;
    return parts;
  }
  std::size_t add(conform_range range) {
    piece_.ranges.push_back(std::move(range));
    return piece_.ranges.size() - 1;
  }

  const piece_spec& spec_;
  draws draw_;
  std::size_t first_;
  std::size_t width_;
  conform_piece piece_;
};

namespace {

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

std::ptrdiff_t offset(std::size_t elements) {
  return static_cast<std::ptrdiff_t>(elements);
}

conform_piece make_all_reduce(const piece_spec& spec) {
  piece_builder made{spec};
  const std::size_t n = made.count();
  for (int r = 0; r < made.ranks(); ++r) {
    const places at = made.arguments(r, made.input(r, n), made.result(n));
    made.step(r, [=, type = made.type(), op = made.op(), factor = made.factor_of(r)](auto in) {
      return all_reduce{at.send.in(in), at.recv.in(in), n, type, op, factor(in)};
    });
  }
  return made.finish();
}

conform_piece make_reduce(const piece_spec& spec) {
  piece_builder made{spec};
  const std::size_t n = made.count();
  const int root = made.root();
  for (int r = 0; r < made.ranks(); ++r) {
    const places at =
        r == root ? made.arguments(r, made.input(r, n), made.result(n)) : made.send_only(r, made.input(r, n));
    made.step(r, [=, type = made.type(), op = made.op(), factor = made.factor_of(r)](auto in) {
      return reduce{at.send.in(in), at.recv.in(in), n, type, op, rank{root}, factor(in)};
    });
  }
  return made.finish();
}

template <class Operation>
conform_piece make_reduce_scatter(const piece_spec& spec) {
  piece_builder made{spec};
  const partition parts = made.parts_for<Operation>();
  for (int r = 0; r < made.ranks(); ++r) {
    const std::size_t own = parts.displacements[index(r)];
    const places at = made.arguments(r, made.input(r, parts), made.result(parts.counts[index(r)], own), -offset(own));
    made.step(r, [=, length = made.length_of<Operation>(parts), type = made.type(), op = made.op(),
                  factor = made.factor_of(r)](auto in) {
      return Operation{at.send.in(in), at.recv.in(in), length, type, op, factor(in)};
    });
  }
  return made.finish();
}

conform_piece make_broadcast(const piece_spec& spec) {
  piece_builder made{spec};
  const std::size_t n = made.count();
  const int root = made.root();
  for (int r = 0; r < made.ranks(); ++r) {
    const places at =
        r == root ? made.arguments(r, made.input(r, n), made.input(root, n)) : made.recv_only(r, made.input(root, n));
    made.step(r, [=, type = made.type()](auto in) {
      return broadcast{at.send.in(in), at.recv.in(in), n, type, rank{root}};
    });
  }
  return made.finish();
}

template <class Operation>
conform_piece make_all_gather(const piece_spec& spec) {
  piece_builder made{spec};
  const partition parts = made.parts_for<Operation>();
  for (int r = 0; r < made.ranks(); ++r) {
    const places at = made.arguments(r, made.input(r, parts.counts[index(r)]), made.gathered(parts),
                                     offset(parts.displacements[index(r)]));
    made.step(r, [=, length = made.length_of<Operation>(parts), type = made.type()](auto in) {
      return Operation{at.send.in(in), at.recv.in(in), length, type};
    });
  }
  return made.finish();
}

template <class Operation>
conform_piece make_gather(const piece_spec& spec) {
  piece_builder made{spec};
  const partition parts = made.parts_for<Operation>();
  const int root = made.root();
  for (int r = 0; r < made.ranks(); ++r) {
    argument sent = made.input(r, parts.counts[index(r)]);
    // NOLINTBEGIN(clang-analyzer-cplusplus.Move): only one of the two moves
    const places at =
        r == root ? made.arguments(r, std::move(sent), made.gathered(parts), offset(parts.displacements[index(r)]))
                  : made.send_only(r, std::move(sent));
    // NOLINTEND(clang-analyzer-cplusplus.Move)
    made.step(r, [=, length = made.length_of<Operation>(parts), type = made.type()](auto in) {
      return Operation{at.send.in(in), at.recv.in(in), length, type, rank{root}};
    });
  }
  return made.finish();
}

template <class Operation>
conform_piece make_scatter(const piece_spec& spec) {
  piece_builder made{spec};
  const partition parts = made.parts_for<Operation>();
  const int root = made.root();
  for (int r = 0; r < made.ranks(); ++r) {
    const std::size_t own = parts.displacements[index(r)];
    const std::size_t count = parts.counts[index(r)];
    const argument part{count, {made.values(root, count, own)}};
    const places at = r == root ? made.arguments(r, made.input(r, parts), part, -offset(own)) : made.recv_only(r, part);
    made.step(r, [=, length = made.length_of<Operation>(parts), type = made.type()](auto in) {
      return Operation{at.send.in(in), at.recv.in(in), length, type, rank{root}};
    });
  }
  return made.finish();
}

conform_piece make_all_to_all(const piece_spec& spec) {
  piece_builder made{spec};
  const std::size_t n = made.count();
  for (int r = 0; r < made.ranks(); ++r) {
    argument received{made.size() * n, {}};
    for (int q = 0; q < made.ranks(); ++q) received.parts.push_back(made.values(q, n, index(r) * n, index(q) * n));
    const places at = made.arguments(r, made.input(r, made.size() * n), std::move(received));
    made.step(r, [=, type = made.type()](auto in) { return all_to_all{at.send.in(in), at.recv.in(in), n, type}; });
  }
  return made.finish();
}

conform_piece make_all_to_all_v(const piece_spec& spec) {
  piece_builder made{spec};
  std::vector<partition> sent;
  for (int r = 0; r < made.ranks(); ++r) sent.push_back(made.spread(made.uneven()));
  for (int r = 0; r < made.ranks(); ++r) {
    std::vector<std::size_t> counts;
    for (const partition& one : sent) counts.push_back(one.counts[index(r)]);
    const partition received = made.spread(std::move(counts));
    argument in_parts{piece_builder::extent(received), {}};
    for (int q = 0; q < made.ranks(); ++q)
      in_parts.parts.push_back(made.values(q, received.counts[index(q)], sent[index(q)].displacements[index(r)],
                                           received.displacements[index(q)]));
    const places at = made.arguments(r, made.input(r, sent[index(r)]), std::move(in_parts));
    made.step(r, [=, mine = sent[index(r)], type = made.type()](auto in) {
      return all_to_all_v{at.send.in(in), at.recv.in(in), mine, received, type};
    });
  }
  return made.finish();
}

} // namespace

std::span<const conform_collective> conform_collectives() noexcept {
  static constexpr conform_collective all[] = {
      {.name = "all_reduce", .reduces = true, .make = &make_all_reduce},
      {.name = "reduce", .reduces = true, .has_root = true, .make = &make_reduce},
      {.name = "broadcast", .has_root = true, .make = &make_broadcast},
      {.name = "all_gather", .count_is_part = true, .make = &make_all_gather<all_gather>},
      {.name = "all_gather_v", .count_is_part = true, .make = &make_all_gather<all_gather_v>},
      {.name = "reduce_scatter", .reduces = true, .count_is_part = true, .make = &make_reduce_scatter<reduce_scatter>},
      {.name = "reduce_scatter_v",
       .reduces = true,
       .count_is_part = true,
       .make = &make_reduce_scatter<reduce_scatter_v>},
      {.name = "all_to_all", .can_be_in_place = false, .count_is_part = true, .make = &make_all_to_all},
      {.name = "all_to_all_v", .can_be_in_place = false, .count_is_part = true, .make = &make_all_to_all_v},
      {.name = "gather", .has_root = true, .count_is_part = true, .make = &make_gather<gather>},
      {.name = "scatter", .has_root = true, .count_is_part = true, .make = &make_scatter<scatter>},
      {.name = "gather_v", .has_root = true, .count_is_part = true, .make = &make_gather<gather_v>},
      {.name = "scatter_v", .has_root = true, .count_is_part = true, .make = &make_scatter<scatter_v>},
  };
  return all;
}

conform_piece make_transfer(const transfer_spec& spec) {
  draws draw{spec.seed};
  const std::size_t first = draw.below(first_limit);
  const value_part part{.first = 0, .count = spec.count, .from = spec.from, .from_first = first};
  const auto range = [&](int owner, std::string_view role) -> conform_range {
    return {.owner = owner,
            .role = role,
            .values = {.type = spec.type},
            .count = spec.count,
            .shift = draw_shift(draw, spec.unaligned)};
  };
  conform_piece made{.ranges = {range(spec.from, "sent"), range(spec.to, "received")}};
  made.ranges[0].before = {part};
  made.ranges[1].after = {part};
  made.steps = {{spec.from,
                 [spec](auto in) {
                   return send{in[0], spec.count, spec.type, rank{spec.to}, spec.tag};
                 },
                 true},
                {spec.to,
                 [spec](auto in) {
                   return recv{in[1], spec.count, spec.type, rank{spec.from}, spec.tag};
                 },
                 true}};
  return made;
}

conform_piece make_ring(int ranks, const transfer_spec& like) {
  conform_piece ring;
  for (int from = 0; from < ranks; ++from) {
    transfer_spec spec = like;
    spec.from = from;
    spec.to = (from + 1) % ranks;
    spec.seed = like.seed + static_cast<std::uint64_t>(from);
    conform_piece one = make_transfer(spec);
    const std::size_t first = ring.ranges.size();
    for (conform_range& range : one.ranges) ring.ranges.push_back(std::move(range));
    for (conform_step& step : one.steps)
      ring.steps.push_back({step.rank,
                            [first, make = std::move(step.make)](std::span<const buffer> buffers) {
                              return make(buffers.subspan(first, 2));
                            },
                            true});
  }
  return ring;
}

conform_piece make_barrier(int ranks) {
  conform_piece made;
  for (int r = 0; r < ranks; ++r) made.steps.push_back({r, [](auto) { return barrier{}; }});
  return made;
}

conform_piece make_agree(int ranks, agreement_rule rule, std::uint64_t seed, std::optional<std::uint64_t> stamp) {
  constexpr unsigned bits_of_rank = 6;
  draws draw{seed};
  const std::size_t count = 1 + draw.below(8);
  const auto root = rank{static_cast<int>(draw.below(static_cast<std::size_t>(ranks)))};
  const bool may_differ =
      rule == agreement_rule::of_rank || rule == agreement_rule::union_of || rule == agreement_rule::gather_all;
  conform_piece made;
  std::vector<std::vector<std::int64_t>> all;
  for (int r = 0; r < ranks; ++r) {
    auto& mine = all.emplace_back(may_differ ? draw.below(count + 1) : count);
    for (auto& one : mine) one = static_cast<std::int64_t>(draw.below(64)) - 32;
    if (stamp) {
      mine.resize(std::max<std::size_t>(mine.size(), 1));
      mine.front() = static_cast<std::int64_t>((*stamp << bits_of_rank) | draw.below(1U << bits_of_rank));
    }
    made.steps.push_back({r, [rule, root, mine](auto) { return agree{rule, contribution{mine}.bytes, root}; }});
  }
  std::vector<std::int64_t> value = all[static_cast<std::size_t>(root.value())];
  agreed_value& expected = made.agreed.emplace();
  for (int r = 0; r < ranks; ++r) {
    const auto& mine = all[static_cast<std::size_t>(r)];
    if (rule == agreement_rule::gather_all) {
      if (r == 0) value.clear();
      value.insert(value.end(), mine.begin(), mine.end());
      expected.part_sizes.push_back(static_cast<std::uint32_t>(mine.size() * sizeof(std::int64_t)));
    }
    if (rule == agreement_rule::union_of) value.insert(value.end(), mine.begin(), mine.end());
    if (may_differ || rank{r} == root) continue;
    for (std::size_t i = 0; i < count; ++i) switch (rule) {
        case agreement_rule::any_of: value[i] |= mine[i]; break;
        case agreement_rule::all_of: value[i] &= mine[i]; break;
        case agreement_rule::min: value[i] = std::min(value[i], mine[i]); break;
        case agreement_rule::max: value[i] = std::max(value[i], mine[i]); break;
        default: // sums wrap
          value[i] =
              static_cast<std::int64_t>(static_cast<std::uint64_t>(value[i]) + static_cast<std::uint64_t>(mine[i]));
          break;
      }
  }
  if (rule == agreement_rule::union_of) {
    const std::set<std::int64_t> once{value.begin(), value.end()};
    value.assign(once.begin(), once.end());
  }
  expected.bytes = contribution{value}.bytes;
  return made;
}

conform_piece make_copies(const copy_spec& spec) {
  draws draw{spec.seed};
  conform_piece made;
  for (int r = 0; r < spec.ranks; ++r) {
    const value_part part{.first = 0, .count = spec.size_bytes, .from = r, .from_first = draw.below(first_limit)};
    const auto range = [&](std::string_view role, bool on_host) -> conform_range {
      return {.owner = r,
              .role = role,
              .values = {},
              .count = spec.size_bytes,
              .shift = draw_shift(draw, spec.unaligned),
              .on_host = on_host};
    };
    const std::size_t from = made.ranges.size();
    made.ranges.push_back(range("source", spec.from_host));
    made.ranges.back().before = {part};
    made.ranges.push_back(range("destination", spec.to_host));
    made.ranges.back().after = {part};
    made.steps.push_back({r, [from](auto in) { return copy{in[from], in[from + 1]}; }});
  }
  return made;
}

group part_of(const conform_piece& piece, rank self, std::span<const buffer> memory) {
  group mine;
  for (const conform_step& one : piece.steps)
    if (one.rank == self.value()) mine.parts.push_back(one.make(memory));
  return mine;
}

operation as_operation(group parts) {
  return parts.parts.size() == 1 ? std::move(parts.parts.front()) : operation{std::move(parts)};
}

} // namespace troupe::program
