#include <troupe/program/stress/small_script.hpp>

#include <troupe/collectives/backend/host_reduce.hpp>
#include <troupe/program/bench/frame/reference_values.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

namespace troupe::program {

namespace {

constexpr std::size_t float_types = 6;
constexpr std::size_t cells_in_area = 32; ///< Of the largest operation.
constexpr std::size_t most_shift = 16;    ///< Elements that operands are shifted by, at each rank by another number.
constexpr std::size_t alignment = 16;

constexpr std::size_t aligned(std::size_t offset) {
  return (offset + alignment - 1) / alignment * alignment;
}

constexpr bool combines(small_kind kind) {
  return kind == small_kind::all_reduce || kind == small_kind::reduce || kind == small_kind::reduce_scatter;
}
constexpr bool is_from_root(small_kind kind) {
  return kind == small_kind::broadcast || kind == small_kind::scatter;
}
constexpr bool is_to_root(small_kind kind) {
  return kind == small_kind::reduce || kind == small_kind::gather;
}
/// Returns whether a rank sends a part to each rank; otherwise it sends the same to all.
constexpr bool sends_parts(small_kind kind) {
  return kind == small_kind::reduce_scatter || kind == small_kind::all_to_all || kind == small_kind::scatter;
}
constexpr bool gets_parts(small_kind kind) {
  return kind == small_kind::all_gather || kind == small_kind::all_to_all || kind == small_kind::gather;
}

std::size_t send_bytes(const small_operation& one, std::size_t at) {
  if (is_from_root(one.kind) && at != one.root) return 0;
  return one.part_bytes() * (sends_parts(one.kind) ? one.send.size() : 1);
}
std::size_t recv_bytes(const small_operation& one, std::size_t at) {
  if (is_to_root(one.kind) && at != one.root) return 0;
  return one.part_bytes() * (gets_parts(one.kind) ? one.send.size() : 1);
}

/// Fills a table of rank \p self. \p type is empty for the table of integers, which also those use that only move
/// bytes.
void fill_table(std::span<std::byte> to, std::optional<dtype> type, bool rounded, draws& draw) {
  const std::size_t size = type ? size_bytes(*type) : sizeof(std::uint64_t);
  for (std::size_t at = 0; at + size <= to.size(); at += size) {
    if (!type) {
      const std::uint64_t value = scramble(draw.below(std::numeric_limits<std::size_t>::max()));
      std::memcpy(to.data() + at, &value, size);
    } else if (rounded) { // a product of eight is below the largest f8e4m3, and not 0
      const double value = 0.5 + static_cast<double>(draw.below(1U << 20U)) * 1.4 / (1U << 20U);
      store_element(to.data() + at, *type, draw.below(2) == 0 ? value : -value);
    } else { // sums of eight of them, times a factor that is one of them, are exact even in f8e5m2
      const int most = size == 1 ? 1 : 2;
      store_element(to.data() + at, *type, static_cast<int>(draw.below(2 * static_cast<std::size_t>(most) + 1)) - most);
    }
  }
}

std::string describe(const small_operation& one) {
  if (one.kind == small_kind::barrier) return "a barrier";
  std::string text = std::string{name_of_kind(static_cast<std::size_t>(one.kind))} + " of " +
                     std::to_string(one.count) + ' ' + std::string{to_string(one.type)};
  if (combines(one.kind)) text += ", " + std::string{to_string(one.op)};
  if (is_from_root(one.kind) || is_to_root(one.kind)) text += ", root " + std::to_string(one.root);
  return text;
}

} // namespace

operation part_of(const small_operation& one, rank self, const buffer& arena) {
  const auto at = static_cast<std::size_t>(self.value());
  const auto range = [&](const std::vector<std::size_t>& offsets, std::size_t bytes) {
    return bytes == 0 ? operand{} : operand{arena.slice(offsets[at], bytes)};
  };
  const operand send = range(one.send, send_bytes(one, at)), recv = range(one.recv, recv_bytes(one, at));
  const rank root{static_cast<int>(one.root)};
  factor by;
  if (!one.factor_value.empty())
    by.value = one.factor_value[at];
  else if (!one.factor.empty())
    by = factor::on_device(arena.slice(one.factor[at], size_bytes(one.type)));
  switch (one.kind) {
    case small_kind::all_reduce: return all_reduce{send, recv, one.count, one.type, one.op, by};
    case small_kind::reduce: return reduce{send, recv, one.count, one.type, one.op, root, by};
    case small_kind::broadcast: return broadcast{send, recv, one.count, one.type, root};
    case small_kind::all_gather: return all_gather{send, recv, one.count, one.type};
    case small_kind::reduce_scatter: return reduce_scatter{send, recv, one.count, one.type, one.op, by};
    case small_kind::all_to_all: return all_to_all{send, recv, one.count, one.type};
    case small_kind::gather: return gather{send, recv, one.count, one.type, root};
    case small_kind::scatter: return scatter{send, recv, one.count, one.type, root};
    case small_kind::barrier: break;
  }
  return barrier{};
}

small_script::small_script(const small_spec& spec, const capabilities& able)
  : spec_{spec},
    able_{able},
    ranks_{static_cast<std::size_t>(spec.ranks)},
    draw_{spec.seed},
    tables_{1 + float_types * (spec.rounded ? 2 : 1)},
    stride_{aligned(ranks_ * (spec.largest + sizeof(std::uint64_t)) + 2 * most_shift * sizeof(std::uint64_t))},
    images_(ranks_, std::vector<std::byte>(2 * tables_ * stride_ + cells_in_area * stride_)),
    fresh_(tables_),
    kept_fresh_(tables_),
    area_{2 * tables_ * stride_},
    kept_area_{area_} {
  for (auto& image : images_) {
    const std::span all{image};
    fill_table(all, {}, false, draw_); // the area, too
    for (const dtype type : all_dtypes)
      for (std::size_t rounded = 0; rounded < (spec.rounded ? 2 : 1) && !is_integer(type); ++rounded)
        fill_table(all.subspan(table_of(type, rounded == 1) * stride_, stride_), type, rounded == 1, draw_);
  }
  begin_round();
}

std::size_t small_script::table_of(dtype type, bool rounded) const noexcept {
  if (is_integer(type)) return 0;
  std::size_t before = 0; // of the types before it, which are floats
  for (const dtype one : all_dtypes)
    if (one < type && !is_integer(one)) ++before;
  return 1 + before + (rounded ? float_types : 0);
}

void small_script::keep_drawn() {
  kept_fresh_ = fresh_;
  kept_area_ = area_;
}

void small_script::begin_round() {
  fresh_ = kept_fresh_;
  area_ = kept_area_;
  ran_.clear();
  for (auto& image : images_) std::memcpy(image.data() + table_bytes(), image.data(), table_bytes());
}

std::vector<small_operation> small_script::draw_group(std::size_t most) {
  std::vector<small_operation> made;
  for (const std::size_t settled = area_; made.size() < most;) {
    std::optional<small_operation> one = draw_operation(settled);
    if (!one) break;
    made.push_back(std::move(*one));
  }
  return made;
}

std::size_t small_script::draw_count(dtype type) {
  const std::size_t most = spec_.largest / size_bytes(type);
  const std::size_t limit = spec_.limits.part_bytes / size_bytes(type);
  switch (draw_.below(64)) {
    case 0: return 0;
    case 1: return limit > 0 && limit <= most ? limit : most;
    case 2: return limit > 0 && limit <= most ? limit + 1 : most;
    default: return draw_.below((most >> draw_.below(16)) + 1); // as many of each magnitude
  }
}

std::optional<small_operation> small_script::draw_operation(std::size_t settled) {
  small_operation made{.kind = static_cast<small_kind>(draw_.below(static_cast<std::size_t>(small_kind::barrier) + 1))};
  if (made.kind == small_kind::barrier && draw_.below(4) != 0) made.kind = small_kind::all_reduce;
  made.send.resize(ranks_);
  made.recv.resize(ranks_);
  if (made.kind == small_kind::barrier) return made;
  const auto draw_of = [this](const auto& all) { return all[draw_.below(all.size())]; };
  made.root = draw_.below(ranks_);
  do {
    made.type = draw_of(all_dtypes);
    if (combines(made.kind)) made.op = draw_of(all_reductions);
  } while (able_.supports(static_cast<std::size_t>(made.kind), made.type,
                          combines(made.kind) ? std::optional{made.op} : std::nullopt, spec_.ranks));
  made.count = draw_count(made.type);
  const bool is_kernel = spec_.limits.part_bytes > 0 && made.part_bytes() <= spec_.limits.part_bytes;
  if (made.op == reduction::avg && !is_integer(made.type) && !is_kernel && !std::has_single_bit(ranks_))
    made.op = reduction::sum; // 1/n is rounded
  if (made.op == reduction::pre_mul_sum)
    for (std::size_t r = 0; r < ranks_; ++r)
      made.factor.push_back(table_of(made.type, false) * stride_ +
                            draw_.below(stride_ / size_bytes(made.type)) * size_bytes(made.type));
  if (!made.factor.empty() && draw_.below(2) == 0)
    for (std::size_t r = 0; r < ranks_; ++r)
      std::memcpy(made.factor_value.emplace_back().data(), images_[r].data() + made.factor[r], size_bytes(made.type));
  if (!place(made, settled)) return std::nullopt;
  return made;
}

bool small_script::place(small_operation& one, std::size_t settled) {
  const std::size_t size = size_bytes(one.type), part = one.part_bytes();
  const std::size_t shifts = most_shift * size, area_begins = 2 * table_bytes();
  const bool is_kernel = part <= spec_.limits.part_bytes;
  const std::size_t table =
      combines(one.kind) ? table_of(one.type, spec_.rounded && is_kernel && draw_.below(2) == 0) : 0;
  const bool is_chained = table == 0 && draw_.below(2) == 0;
  const std::size_t longest = part * (sends_parts(one.kind) || gets_parts(one.kind) ? ranks_ : 1);
  const bool is_in_place =
      one.kind != small_kind::all_to_all && draw_.below(4) == 0 && fresh_[table] + longest + shifts <= stride_;
  if (!is_in_place && area_ + longest + shifts > arena_bytes()) return false;
  const bool is_shifted = draw_.below(2) == 0;
  for (std::size_t r = 0; r < ranks_; ++r) {
    const std::size_t shift = is_shifted ? draw_.below(most_shift) * size : 0;
    if (is_in_place) {
      const std::size_t begin = table_bytes() + table * stride_ + fresh_[table] + shift;
      one.send[r] = begin + (gets_parts(one.kind) ? r * part : 0);
      one.recv[r] = begin + (sends_parts(one.kind) ? r * part : 0);
      continue;
    }
    const auto draw_within = [&](std::size_t first, std::size_t end) {
      return first + draw_.below((end - first - send_bytes(one, r)) / size + 1) * size;
    };
    one.recv[r] = area_ + shift;
    one.send[r] = is_chained && settled - area_begins >= send_bytes(one, r)
                      ? draw_within(area_begins, settled)
                      : draw_within(table * stride_, (table + 1) * stride_);
  }
  (is_in_place ? fresh_[table] : area_) += aligned(longest + shifts);
  return true;
}

void small_script::combine(const small_operation& one, std::size_t to) {
  std::vector<reduce_part> parts(ranks_);
  for (std::size_t r = 0; r < ranks_; ++r) {
    parts[r].send = images_[r].data() + one.send[r] + (sends_parts(one.kind) ? to * one.part_bytes() : 0);
    if (one.op == reduction::pre_mul_sum)
      std::memcpy(parts[r].factor.data(), images_[r].data() + one.factor[r], size_bytes(one.type));
  }
  parts[to].recv = images_[to].data() + one.recv[to];
  reduce_parts(parts, one.count, one.type, one.op);
}

void small_script::run(const std::vector<small_operation>& group) {
  for (const small_operation& one : group) {
    ran_.push_back(one);
    const std::size_t part = one.part_bytes();
    if (one.kind == small_kind::all_reduce && part > 0) {
      // Once, and copied: all inputs are read before the first is overwritten in place.
      combine(one, 0);
      for (std::size_t r = 1; r < ranks_; ++r)
        std::memcpy(images_[r].data() + one.recv[r], images_[0].data() + one.recv[0], part);
      continue;
    }
    for (std::size_t to = 0; to < ranks_; ++to) {
      if (recv_bytes(one, to) == 0) continue;
      if (combines(one.kind)) {
        combine(one, to);
        continue;
      }
      for (std::size_t from = 0; from < ranks_; ++from)
        if (send_bytes(one, from) > 0) // in place the two are equal
          std::memmove(images_[to].data() + one.recv[to] + (gets_parts(one.kind) ? from * part : 0),
                       images_[from].data() + one.send[from] + (sends_parts(one.kind) ? to * part : 0), part);
    }
  }
}

std::size_t small_script::find_faults(std::size_t at, std::size_t first, std::span<const std::byte> seen,
                                      std::string& what) const {
  const std::span expected = std::span{images_[at]}.subspan(first, seen.size());
  if (std::memcmp(expected.data(), seen.data(), seen.size()) == 0) return 0;
  std::vector<std::byte> rest(seen.begin(), seen.end()); // without the results that have been looked at
  std::size_t wrong = 0;
  const auto look_at = [&](std::size_t begin, std::size_t end, const std::string& where) {
    const auto [seen_at, expected_at] = std::mismatch(rest.begin() + static_cast<std::ptrdiff_t>(begin),
                                                      rest.begin() + static_cast<std::ptrdiff_t>(end),
                                                      expected.begin() + static_cast<std::ptrdiff_t>(begin));
    if (expected_at == expected.begin() + static_cast<std::ptrdiff_t>(end)) return;
    if (wrong++ == 0)
      what = "byte " + std::to_string(static_cast<std::size_t>(seen_at - rest.begin()) - begin) + " of " + where +
             " at rank " + std::to_string(at) + " is " + std::to_string(std::to_integer<unsigned>(*seen_at)) +
             ", expected " + std::to_string(std::to_integer<unsigned>(*expected_at));
    std::ranges::copy(expected.subspan(begin, end - begin), rest.begin() + static_cast<std::ptrdiff_t>(begin));
  };
  for (const small_operation& one : ran_)
    if (const std::size_t bytes = recv_bytes(one, at); bytes > 0 && one.recv[at] >= first)
      look_at(one.recv[at] - first, one.recv[at] - first + bytes,
              "the result of operation " + std::to_string(&one - ran_.data()) + " of the round, " + describe(one));
  look_at(0, rest.size(), "memory that no operation writes");
  return wrong;
}

} // namespace troupe::program
