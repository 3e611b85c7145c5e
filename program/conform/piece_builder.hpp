/// Builds the piece of a collective: ranges for both arguments of each rank, out of place or in place.
#pragma once

#include <troupe/program/conform/conform_pieces.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
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

/// Common functions of the makers of all collectives.
class piece_builder {
public:
  explicit piece_builder(const piece_wish& wish)
    : wish_{wish}, draw_{wish.seed}, first_{draw_.below(first_limit)}, width_{size_bytes(wish.values.type)} {}

  [[nodiscard]] int ranks() const { return wish_.ranks; }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(wish_.ranks); }
  [[nodiscard]] std::size_t count() const { return wish_.count; }
  [[nodiscard]] dtype type() const { return wish_.values.type; }
  [[nodiscard]] reduction op() const { return wish_.values.op; }
  [[nodiscard]] int draw_root() { return static_cast<int>(draw_.below(size())); }
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
    if (!wish_.in_place) return {add(owner, "send", std::move(send), {}), add(owner, "recv", {}, std::move(recv))};
    const std::size_t send_first = send_at > 0 ? static_cast<std::size_t>(send_at) : 0;
    const std::size_t recv_first = send_at < 0 ? static_cast<std::size_t>(-send_at) : 0;
    conform_range both{.owner = owner,
                       .role = "send and recv",
                       .values = wish_.values,
                       .count = std::max(send_first + send.count, recv_first + recv.count),
                       .shift = draw_shift(draw_, wish_.unaligned)};
    both.before = moved(std::move(send.parts), send_first);
    both.after = moved(std::move(recv.parts), recv_first);
    const std::size_t index = add(std::move(both));
    return {{index, send_first, send.count, width_}, {index, recv_first, recv.count, width_}};
  }

  /// Adds a used and an unused argument. The unused one has no memory, or memory that must stay unchanged.
  [[nodiscard]] places send_only(int owner, argument send) {
    const place used = add(owner, "send", std::move(send), {});
    if (wish_.in_place) return {used, used};
    return {used, draw_.below(2) == 0 ? place{} : add(owner, "unused recv", {wish_.count, {}}, {})};
  }
  [[nodiscard]] places recv_only(int owner, argument recv) {
    const place used = add(owner, "recv", {}, std::move(recv));
    if (wish_.in_place) return {used, used};
    return {draw_.below(2) == 0 ? place{} : add(owner, "unused send", {wish_.count, {}}, {}), used};
  }

  [[nodiscard]] place add(int owner, std::string_view role, argument before, argument after) {
    const std::size_t length = std::max(before.count, after.count);
    return {add({.owner = owner,
                 .role = role,
                 .values = wish_.values,
                 .count = length,
                 .shift = draw_shift(draw_, wish_.unaligned),
                 .before = std::move(before.parts),
                 .after = std::move(after.parts)}),
            0, length, width_};
  }

  /// Returns \p owner's factor, by value or in device memory of its own.
  [[nodiscard]] std::function<factor(std::span<const buffer>)> factor_of(int owner) {
    if (wish_.values.op != reduction::pre_mul_sum) return [](auto) { return factor{}; };
    if (!wish_.factor_on_device)
      return [made = reference_factor(type(), owner, wish_.values.kind)](auto) { return made; };
    const std::size_t index = add({.owner = owner,
                                   .role = "factor",
                                   .values = wish_.values,
                                   .count = 1,
                                   .shift = draw_shift(draw_, wish_.unaligned),
                                   .factor_of = owner});
    return [index](std::span<const buffer> buffers) { return factor::on_device(buffers[index]); };
  }

  void step(int rank, conform_maker make) { piece_.steps.push_back({rank, std::move(make)}); }
  [[nodiscard]] conform_piece finish() { return std::move(piece_); }

  /// Returns parts of these sizes with gaps between them, in ascending or descending order.
  [[nodiscard]] partition spread(std::vector<std::size_t> counts) {
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
    std::vector<std::size_t> counts(size());
    for (std::size_t& one : counts) one = draw_.below(count() + 1);
    const std::size_t longest = draw_.below(size());
    counts[longest] = count();
    if (size() > 1) counts[(longest + 1 + draw_.below(size() - 1)) % size()] = 0;
    return counts;
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

  const piece_wish& wish_;
  draws draw_;
  std::size_t first_;
  std::size_t width_;
  conform_piece piece_;
};

} // namespace troupe::program
