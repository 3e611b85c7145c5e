#include <troupe/collectives/backend/one_shot/one_shot_plan.hpp>

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

namespace troupe {

namespace {

constexpr unsigned warp = 32;

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

unsigned blocks_of(const one_shot_entry& one, unsigned lines_per_thread) noexcept {
  const unsigned each = one_shot_threads * lines_per_thread;
  return (line_count_of(one.part_bytes) + each - 1) / each;
}

unsigned blocks_of(std::span<const one_shot_entry> all, unsigned lines_per_thread) noexcept {
  unsigned sum = 0;
  for (const one_shot_entry& one : all) sum += blocks_of(one, lines_per_thread);
  return sum;
}

/// Gives \p one its blocks, from \p first on. Returns their number.
unsigned place(one_shot_entry& one, unsigned first, unsigned lines_per_thread) noexcept {
  const unsigned count = blocks_of(one, lines_per_thread);
  one.first_block = static_cast<std::uint16_t>(first);
  one.lines_per_block = static_cast<std::uint16_t>((line_count_of(one.part_bytes) + count - 1) / count);
  return count;
}

unsigned threads_for(unsigned lines_per_block) noexcept {
  return std::min(one_shot_threads, (lines_per_block + warp - 1) / warp * warp);
}

} // namespace

one_shot_single plan_alone(one_shot_entry one, unsigned most_blocks) noexcept {
  unsigned lines_per_thread = 1;
  while (lines_per_thread < one_shot_lines && blocks_of(one, lines_per_thread) > most_blocks) lines_per_thread *= 2;
  const unsigned blocks = place(one, 0, lines_per_thread);
  return {one, blocks, threads_for(one.lines_per_block)};
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

std::vector<one_shot_launch> plan_launches(std::span<const one_shot_entry> all, unsigned most_blocks) {
  std::vector<one_shot_launch> launches;
  while (!all.empty()) {
    // As many as fit if each thread has as many lines as it can; then as few lines for each thread as these permit.
    std::size_t taken = 0;
    unsigned blocks = 0;
    while (taken < all.size() && taken < one_shot_entries) {
      const unsigned more = blocks_of(all[taken], one_shot_lines);
      if (taken > 0 && blocks + more > most_blocks) break;
      blocks += more;
      ++taken;
    }
    const auto together = all.first(taken);
    unsigned lines_per_thread = 1;
    while (lines_per_thread < one_shot_lines && blocks_of(together, lines_per_thread) > most_blocks)
      lines_per_thread *= 2;
    one_shot_launch made;
    unsigned most_lines = 0;
    for (one_shot_entry one : together) {
      made.blocks += place(one, made.blocks, lines_per_thread);
      most_lines = std::max<unsigned>(most_lines, one.lines_per_block);
      made.entries.push_back(one);
    }
    made.threads = threads_for(most_lines);
    launches.push_back(std::move(made));
    all = all.subspan(taken);
  }
  return launches;
}

} // namespace troupe
