#include <troupe/program/conform/conform_image.hpp>
#include <troupe/program/stress/stress_script.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace troupe::program {

namespace {

/// Elements that every rank can reduce exactly, in any order.
constexpr std::array value_sources{
    value_source{.type = dtype::f32, .op = reduction::sum, .kind = value_kind::exact},
    value_source{.type = dtype::i32, .op = reduction::max, .kind = value_kind::exact},
    value_source{.type = dtype::u8, .op = reduction::min, .kind = value_kind::exact},
    value_source{.type = dtype::u64, .op = reduction::sum, .kind = value_kind::exact},
};

/// Every rank sends to the next and receives from the previous one: a group of two operations at every rank.
conform_piece make_ring(int ranks, const transfer_wish& like) {
  conform_piece ring;
  for (int from = 0; from < ranks; ++from) {
    transfer_wish wish = like;
    wish.from = from;
    wish.to = (from + 1) % ranks;
    wish.seed = like.seed + static_cast<std::uint64_t>(from);
    conform_piece one = make_transfer(wish);
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

} // namespace

stress_script::stress_script(int ranks, std::uint64_t seed, std::size_t largest)
  : ranks_{ranks}, seed_{seed}, largest_{largest} {}

std::span<const value_source> stress_script::sources() {
  return value_sources;
}

conform_piece stress_script::piece_of(const stress_step& step) const {
  const std::uint64_t seed = scramble(seed_ ^ scramble(step.client ^ scramble(step.lane ^ scramble(step.index))));
  draws draw{seed};
  const std::size_t kind = draw.below(100);
  const std::size_t count = draw.below(8) == 0 ? 0 : 1 + draw.below(largest_);
  const value_source source = value_sources[draw.below(value_sources.size())];
  const auto ranks = static_cast<std::size_t>(ranks_);
  if (kind < 5) return make_barrier(ranks_);
  if (kind < 35 && ranks_ > 1) {
    transfer_wish wish{.tag = static_cast<int>(draw.below(3)), .type = dtype::u8, .count = count, .seed = seed};
    if (kind < 10) return make_ring(ranks_, wish);
    const std::size_t from = draw.below(ranks);
    wish.from = static_cast<int>(from);
    wish.to = static_cast<int>((from + 1 + draw.below(ranks - 1)) % ranks);
    return make_transfer(wish);
  }
  const auto all = conform_collectives();
  const conform_collective& one = all[draw.below(all.size())];
  return one.make({.ranks = ranks_,
                   .values = one.reduces ? source : value_source{.type = dtype::u8},
                   .count = count,
                   .in_place = one.can_be_in_place && draw.below(2) == 0,
                   .unaligned = draw.below(4) == 0,
                   .seed = seed});
}

std::size_t stress_script::room_bytes() const {
  // The longest argument holds a part for each rank, and there are two arguments; v-forms leave gaps between parts.
  const conform_range longest{
      .role = "longest", .values = {.type = dtype::u64}, .count = 2 * largest_ * static_cast<std::size_t>(ranks_)};
  return 4 * conform_image::room_for(longest);
}

} // namespace troupe::program
