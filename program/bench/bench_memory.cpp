#include <troupe/program/bench/bench_memory.hpp>
#include <troupe/program/bench/reference_values.hpp>

#include <algorithm>
#include <utility>

namespace troupe::program {

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
    for (auto* const kind : {&send_, &recv_})
      kind->push_back(world_.allocate(self, size_bytes + unaligned * largest_element));
}

rank_memory bench_memory::memory_of(std::size_t index, const bench_case& one) const {
  const std::size_t element = size_bytes(one.type);
  const auto self = static_cast<std::size_t>(world_.local_ranks()[index].value());
  const auto range = [&](const buffer& of, std::size_t offset, std::size_t count) {
    return of.slice((unaligned_ + offset) * element, count * element);
  };
  if (!one.in_place)
    return {range(send_[index], 0, one.shape.send_count), range(recv_[index], 0, one.shape.recv_count)};
  return {range(recv_[index], self * one.shape.send_offset, one.shape.send_count),
          range(recv_[index], self * one.shape.recv_offset, one.shape.recv_count)};
}

std::vector<operation> bench_memory::parts(const bench_case& one) const {
  std::vector<operation> all;
  for (std::size_t i = 0; i < send_.size(); ++i)
    all.push_back(one.what->make({.memory = memory_of(i, one),
                                  .count = one.shape.count,
                                  .type = one.type,
                                  .op = one.op,
                                  .root = one.root,
                                  .self = world_.local_ranks()[i].value(),
                                  .ranks = world_.size()}));
  return all;
}

std::size_t bench_memory::count_wrong(asker& who, const bench_case& one, std::uint64_t seed) {
  const reference_values values{one.type, one.op, world_.size(), seed};
  const std::size_t element = size_bytes(one.type);
  const auto host = staging_.host_span<std::byte>();
  const auto& ranks = world_.local_ranks();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const rank_memory memory = memory_of(i, one);
    const auto write = [&](const buffer& to, auto content) {
      for_each_piece(to.size_bytes(), [&](std::size_t offset, std::size_t bytes) {
        content(offset / element, host.first(bytes));
        world_.copy(ranks[i], staging_.slice(0, bytes), to.slice(offset, bytes)).get();
      });
    };
    // Fill the results with a value that no input has, so that an unwritten result cannot be correct by accident.
    write(memory.recv, [](std::size_t, std::span<std::byte> to) { std::ranges::fill(to, std::byte{0xA5}); });
    write(memory.send, [&](std::size_t first, std::span<std::byte> to) { values.fill(ranks[i].value(), first, to); });
  }
  static_cast<void>(who.ask(parts(one), 1, 1));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const buffer result = memory_of(i, one).recv;
    const bench_seat seat{.self = ranks[i].value(), .ranks = world_.size(), .root = one.root};
    for (const value_part& part : one.what->result(one.shape, seat)) {
      const buffer seen = result.slice(part.first * element, part.count * element);
      for_each_piece(seen.size_bytes(), [&](std::size_t offset, std::size_t bytes) {
        world_.copy(ranks[i], seen.slice(offset, bytes), staging_.slice(0, bytes)).get();
        wrong += values.count_wrong(part.from, part.from_first + offset / element, host.first(bytes));
      });
    }
  }
  return wrong;
}

} // namespace troupe::program
