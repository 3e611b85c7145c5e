#include <troupe/program/bench/bench_operation.hpp>
#include <troupe/program/bench/frame/reference_values.hpp>

#include <algorithm>
#include <utility>

namespace troupe::program {

std::size_t bench_operation::count_within(std::size_t elements, int ranks, std::size_t element_bytes) const noexcept {
  if (!moves_data) return 0;
  if (!count_is_part) return elements;
  const std::size_t step = 16 / element_bytes;
  return elements / static_cast<std::size_t>(ranks) / step * step;
}

std::size_t bench_operation::buffer_bytes(std::size_t count, int ranks, std::size_t element_bytes) const noexcept {
  return count * (count_is_part ? static_cast<std::size_t>(ranks) : 1) * element_bytes;
}

double bench_operation::bus_factor(int ranks) const noexcept {
  const double without_own = (ranks - 1.0) / ranks;
  if (name == "all_reduce") return 2 * without_own;
  return count_is_part ? without_own : 1;
}

std::span<const bench_operation> bench_operations() {
  static const std::vector<bench_operation> all = [] {
    std::vector<bench_operation> made;
    for (const conform_collective& one : conform_collectives()) made.push_back({one});
    made.push_back({{.name = "sendrecv", .can_be_in_place = false, .make = [](const piece_spec& spec) {
                       return make_ring(spec.ranks, {.type = spec.values.type, .count = spec.count, .seed = spec.seed});
                     }}});
    made.push_back({{.name = "barrier",
                     .can_be_in_place = false,
                     .make = [](const piece_spec& spec) { return make_barrier(spec.ranks); }},
                    false});
    return made;
  }();
  return all;
}

conform_piece bench_case::piece(int ranks, std::uint64_t seed) const {
  return what->make({.ranks = ranks,
                     .values = {type, op, value_kind::full},
                     .count = count,
                     .in_place = in_place,
                     .seed = seed,
                     .root = root,
                     .even = true});
}

namespace {

constexpr std::size_t staging_bytes = std::size_t{8} << 20U; // A multiple of every element size.

/// Calls \p use(offset, bytes) for consecutive pieces of a range that fit into the staging buffer.
template <class Use>
void for_each_piece(std::size_t size_bytes, Use use) {
  for (std::size_t done = 0; done < size_bytes; done += staging_bytes)
    use(done, std::min(staging_bytes, size_bytes - done));
}

} // namespace

bench_memory::bench_memory(world where, std::size_t size_bytes, std::size_t unaligned)
  : world_{std::move(where)}, unaligned_{unaligned}, staging_{world_.allocate_pinned(staging_bytes)} {
  constexpr std::size_t largest_element = 8;
  for (const rank self : world_.local_ranks())
    for (buffer& one : memory_[self]) one = world_.allocate(self, size_bytes + unaligned * largest_element);
}

std::vector<buffer> bench_memory::place(const conform_piece& piece, dtype type) const {
  const std::size_t element = size_bytes(type);
  std::map<int, std::size_t> used; // Buffers in use, by rank.
  std::vector<buffer> memory;
  for (const conform_range& range : piece.ranges) {
    const auto found = memory_.find(rank{range.owner});
    memory.push_back(found == memory_.end()
                         ? buffer{}
                         : found->second.at(used[range.owner]++).slice(unaligned_ * element, range.count * element));
  }
  return memory;
}

std::vector<operation> bench_memory::parts_on(const std::vector<buffer>& memory, const conform_piece& piece) const {
  std::vector<operation> all;
  for (const rank self : world_.local_ranks()) all.push_back(as_operation(part_of(piece, self, memory)));
  return all;
}

std::vector<operation> bench_memory::parts(const bench_case& one) const {
  const conform_piece piece = one.piece(world_.size(), 0);
  return parts_on(place(piece, one.type), piece);
}

std::size_t bench_memory::count_wrong(asker& who, const bench_case& one, std::uint64_t seed) {
  const reference_values values{one.type, one.op, world_.size(), seed};
  const conform_piece piece = one.piece(world_.size(), seed);
  const std::vector<buffer> memory = place(piece, one.type);
  const std::size_t element = size_bytes(one.type);
  const auto host = staging_.host_span<std::byte>();
  const auto write = [&](std::size_t range, std::size_t first, std::size_t count, auto content) {
    const buffer to = memory[range].slice(first * element, count * element);
    for_each_piece(to.size_bytes(), [&](std::size_t offset, std::size_t bytes) {
      content(offset / element, host.first(bytes));
      world_.copy(rank{piece.ranges[range].owner}, staging_.slice(0, bytes), to.slice(offset, bytes)).get();
    });
  };
  for (std::size_t i = 0; i < memory.size(); ++i) {
    if (!memory[i]) continue;
    const conform_range& range = piece.ranges[i];
    // Fill results with a value that no input has, so that an unwritten result cannot be correct by accident.
    if (!range.after.empty())
      write(i, 0, range.count, [](std::size_t, std::span<std::byte> to) { std::ranges::fill(to, std::byte{0xA5}); });
    for (const value_part& part : range.before)
      write(i, part.first, part.count,
            [&](std::size_t first, std::span<std::byte> to) { values.fill(part.from, part.from_first + first, to); });
  }
  static_cast<void>(who.ask(parts_on(memory, piece), 1, 1));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < memory.size(); ++i)
    for (const value_part& part : piece.ranges[i].after) {
      if (!memory[i]) continue;
      const buffer seen = memory[i].slice(part.first * element, part.count * element);
      for_each_piece(seen.size_bytes(), [&](std::size_t offset, std::size_t bytes) {
        world_.copy(rank{piece.ranges[i].owner}, seen.slice(offset, bytes), staging_.slice(0, bytes)).get();
        wrong += values.count_wrong(part.from, part.from_first + offset / element, host.first(bytes));
      });
    }
  return wrong;
}

} // namespace troupe::program
