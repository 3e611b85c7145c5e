#include <troupe/collectives/backend/one_shot/one_shot_plan.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <variant>

namespace troupe {

namespace {

const std::byte* address(const operand& one) noexcept {
  return one.memory.data();
}

std::byte* writable(const operand& one) noexcept {
  return const_cast<std::byte*>(static_cast<const std::byte*>(one.memory.data()));
}

/// Sets the fields of an entry that depend on the kind of operation. The addresses are set only where this rank uses
/// the memory.
struct entry_maker {
  std::int8_t self;
  one_shot_entry& made;

  void operator()(const all_reduce& one) const {
    made.combines = true;
    both(one);
  }
  void operator()(const reduce& one) const {
    made.combines = true;
    made.to = number(one.root);
    both(one);
  }
  void operator()(const broadcast& one) const {
    made.from = number(one.root);
    both(one);
  }
  void operator()(const all_gather& one) const {
    made.recv_stride = made.part_bytes;
    both(one);
  }
  void operator()(const reduce_scatter& one) const {
    made.combines = true;
    made.send_stride = made.part_bytes;
    both(one);
  }
  void operator()(const all_to_all& one) const {
    made.send_stride = made.recv_stride = made.part_bytes;
    both(one);
  }
  void operator()(const gather& one) const {
    made.to = number(one.root);
    made.recv_stride = made.part_bytes;
    both(one);
  }
  void operator()(const scatter& one) const {
    made.from = number(one.root);
    made.send_stride = made.part_bytes;
    both(one);
  }
  void operator()(const auto&) const {} // a barrier: no part has any bytes

private:
  static std::int8_t number(rank one) noexcept { return static_cast<std::int8_t>(one.value()); }
  void both(const auto& one) const {
    if (made.from < 0 || made.from == self) made.send = address(one.send);
    if (made.to < 0 || made.to == self) made.recv = writable(one.recv);
  }
};

/// Blocks have this many warps as long as there are enough blocks: a few multiprocessors answer faster than one, and
/// large blocks start later than small ones.
constexpr unsigned usual_warps = 8;
constexpr unsigned most_warps = one_shot_threads / one_shot_lanes;

/// \p lines_per_warp: as in one_shot_shape, a power of two.
unsigned warps_of(const one_shot_entry& one, unsigned lines_per_warp) noexcept {
  return (line_count_of(one.part_bytes) + lines_per_warp - 1) >>
         static_cast<unsigned>(std::countr_zero(lines_per_warp));
}

unsigned warps_of(std::span<const one_shot_entry> all, unsigned lines_per_warp) noexcept {
  unsigned sum = 0;
  for (const one_shot_entry& one : all) sum += warps_of(one, lines_per_warp);
  return sum;
}

/// Returns the shape of a launch of \p all: with as few lines for each thread as \p most_blocks permit.
one_shot_shape shape_of(std::span<const one_shot_entry> all, unsigned most_blocks) noexcept {
  unsigned lines = one_shot_lanes;
  unsigned warps = warps_of(all, lines);
  while (lines < one_shot_lines * one_shot_lanes && warps > most_blocks * most_warps) {
    lines *= 2;
    warps = warps_of(all, lines);
  }
  const unsigned each = std::max((warps + most_blocks - 1) / most_blocks, std::min(usual_warps, warps));
  return {.blocks = static_cast<std::uint16_t>((warps + each - 1) / each),
          .warps_per_block = static_cast<std::uint16_t>(each),
          .lines_per_warp = static_cast<std::uint16_t>(lines)};
}

} // namespace

one_shot_form form_of(const one_shot_entry& one) noexcept {
  const auto shape = reinterpret_cast<std::uintptr_t>(one.send) | reinterpret_cast<std::uintptr_t>(one.recv);
  const bool all_send_all = one.from < 0 && one.to < 0 && one.send_stride == 0;
  if (!one.combines || !all_send_all || static_cast<reduction>(one.op) != reduction::sum || one.part_bytes == 0 ||
      ((shape | one.part_bytes) & (line_payload_bytes - 1)) != 0)
    return one_shot_form::any;
  switch (static_cast<dtype>(one.type)) {
    case dtype::f32: return one_shot_form::f32_sum;
    case dtype::f16: return one_shot_form::f16_sum;
    case dtype::bf16: return one_shot_form::bf16_sum;
    default: return one_shot_form::any;
  }
}

one_shot_shape plan_alone(const one_shot_entry& one, unsigned most_blocks) noexcept {
  return shape_of({&one, 1}, most_blocks);
}

one_shot_entry entry_of(const operation& what, rank self) {
  one_shot_entry made;
  std::visit(
      [&](const auto& one) {
        if constexpr (requires {
                        one.count;
                        one.type;
                      }) {
          made.part_bytes = static_cast<std::uint32_t>(one.count * size_bytes(one.type));
          made.type = static_cast<std::uint8_t>(one.type);
        }
        if constexpr (requires { one.factor; }) {
          made.op = static_cast<std::uint8_t>(one.op);
          made.factor_on_device = one.op == reduction::pre_mul_sum && one.factor.memory.size_bytes() != 0;
          if (made.factor_on_device)
            made.factor = reinterpret_cast<std::uintptr_t>(one.factor.memory.data());
          else
            std::memcpy(&made.factor, one.factor.value.data(), sizeof made.factor);
        }
        entry_maker{static_cast<std::int8_t>(self.value()), made}(one);
      },
      what);
  return made;
}

std::array<one_shot_entry, 2> two_shot_entries(const operation& what, rank self, int ranks) {
  one_shot_entry reduced = entry_of(what, self);
  std::byte* const whole = reduced.recv;
  reduced.part_bytes /= static_cast<std::uint32_t>(ranks);
  reduced.send_stride = reduced.part_bytes;
  reduced.recv += static_cast<std::size_t>(self.value()) * reduced.part_bytes;
  one_shot_entry gathered;
  gathered.type = reduced.type;
  gathered.part_bytes = gathered.recv_stride = reduced.part_bytes;
  gathered.send = reduced.recv;
  gathered.recv = whole;
  return {reduced, gathered};
}

std::vector<one_shot_launch> plan_launches(std::span<one_shot_entry> all, unsigned most_blocks) {
  std::vector<one_shot_launch> launches;
  while (!all.empty()) {
    // As many as fit if each thread has as many lines as it can.
    std::size_t taken = 0;
    unsigned warps = 0;
    while (taken < all.size() && taken < one_shot_entries) {
      const unsigned more = warps_of(all[taken], one_shot_lines * one_shot_lanes);
      if (taken > 0 && warps + more > most_blocks * most_warps) break;
      warps += more;
      ++taken;
    }
    const auto together = all.first(taken);
    const one_shot_shape shape = shape_of(together, most_blocks);
    unsigned first = 0;
    for (one_shot_entry& one : together) {
      one.first_warp = static_cast<std::uint16_t>(first);
      first += warps_of(one, shape.lines_per_warp);
    }
    launches.push_back({together, shape});
    all = all.subspan(taken);
  }
  return launches;
}

} // namespace troupe
