#include <troupe/program/bench/bench_operation.hpp>
#include <troupe/program/bench/frame/reference_values.hpp>

#include <algorithm>
#include <utility>

namespace troupe::program {

namespace {

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

/// Returns the elements of each rank's part: a multiple of 16 bytes.
std::size_t part_of(std::size_t elements, int ranks, std::size_t element_bytes) {
  const std::size_t step = 16 / element_bytes;
  return elements / index(ranks) / step * step;
}

bench_shape whole_shape(std::size_t elements, int, std::size_t) {
  return {.count = elements, .send_count = elements, .recv_count = elements};
}

/// Returns the shape of an operation in which every rank sends a part and the result has all parts.
bench_shape gathering_shape(std::size_t elements, int ranks, std::size_t element_bytes) {
  const std::size_t part = part_of(elements, ranks, element_bytes);
  return {.count = part, .send_count = part, .recv_count = part * index(ranks), .send_offset = part};
}

/// Returns the shape of an operation in which every rank receives a part of the data of all ranks, or of the root.
bench_shape scattering_shape(std::size_t elements, int ranks, std::size_t element_bytes) {
  const std::size_t part = part_of(elements, ranks, element_bytes);
  return {.count = part, .send_count = part * index(ranks), .recv_count = part, .recv_offset = part};
}

bench_shape exchanging_shape(std::size_t elements, int ranks, std::size_t element_bytes) {
  const std::size_t part = part_of(elements, ranks, element_bytes);
  return {.count = part, .send_count = part * index(ranks), .recv_count = part * index(ranks)};
}

double once(int) {
  return 1;
}

double without_own(int ranks) {
  return (ranks - 1.0) / ranks;
}

double twice_without_own(int ranks) {
  return 2 * without_own(ranks);
}

using value_parts = std::vector<value_part>;

value_parts reduced_everywhere(const bench_shape& shape, const bench_rank&) {
  return {{.count = shape.recv_count}};
}

value_parts reduced_at_root(const bench_shape& shape, const bench_rank& context) {
  if (context.self != context.root) return {};
  return {{.count = shape.recv_count}};
}

value_parts reduced_part(const bench_shape& shape, const bench_rank& context) {
  return {{.count = shape.count, .from_first = index(context.self) * shape.count}};
}

value_parts root_s_input(const bench_shape& shape, const bench_rank& context) {
  return {{.count = shape.recv_count, .from = context.root}};
}

value_parts part_of_root_s_input(const bench_shape& shape, const bench_rank& context) {
  return {{.count = shape.count, .from = context.root, .from_first = index(context.self) * shape.count}};
}

/// Returns parts from every rank. \p own is the index in each rank's input where the part for this rank begins.
value_parts from_each(const bench_shape& shape, const bench_rank& context, std::size_t own) {
  value_parts all;
  for (int from = 0; from < context.ranks; ++from)
    all.push_back({.first = index(from) * shape.count, .count = shape.count, .from = from, .from_first = own});
  return all;
}

value_parts inputs_of_all(const bench_shape& shape, const bench_rank& context) {
  return from_each(shape, context, 0);
}

value_parts inputs_of_all_at_root(const bench_shape& shape, const bench_rank& context) {
  return context.self == context.root ? from_each(shape, context, 0) : value_parts{};
}

value_parts parts_from_each(const bench_shape& shape, const bench_rank& context) {
  return from_each(shape, context, index(context.self) * shape.count);
}

int before(int self, int ranks) {
  return (self + ranks - 1) % ranks;
}

value_parts input_of_the_rank_before(const bench_shape& shape, const bench_rank& context) {
  return {{.count = shape.count, .from = before(context.self, context.ranks)}};
}

partition equal_parts(const bench_arguments& of) {
  return partition::packed(std::vector<std::size_t>(index(of.ranks), of.count));
}

} // namespace

std::size_t bench_shape::size(std::size_t element_bytes) const noexcept {
  return std::max(send_count, recv_count) * element_bytes;
}

factor bench_arguments::own_factor() const {
  return op == reduction::pre_mul_sum ? reference_factor(type, self, value_kind::full) : factor{};
}

std::span<const bench_operation> bench_operations() noexcept {
  using asked = const bench_arguments&;
  static constexpr bench_operation known[] = {
      {.name = "all_reduce",
       .reduces = true,
       .shape = &whole_shape,
       .bus_factor = &twice_without_own,
       .make = [](asked of) -> operation {
         return all_reduce{of.memory.send, of.memory.recv, of.count, of.type, of.op, of.own_factor()};
       },
       .result = &reduced_everywhere},
      {.name = "reduce",
       .reduces = true,
       .has_root = true,
       .shape = &whole_shape,
       .bus_factor = &once,
       .make = [](asked of) -> operation {
         return reduce{of.memory.send, of.memory.recv, of.count, of.type, of.op, rank{of.root}, of.own_factor()};
       },
       .result = &reduced_at_root},
      {.name = "broadcast",
       .has_root = true,
       .shape = &whole_shape,
       .bus_factor = &once,
       .make = [](asked of) -> operation {
         return broadcast{of.memory.send, of.memory.recv, of.count, of.type, rank{of.root}};
       },
       .result = &root_s_input},
      {.name = "all_gather",
       .shape = &gathering_shape,
       .bus_factor = &without_own,
       .make = [](asked of) -> operation {
         return all_gather{of.memory.send, of.memory.recv, of.count, of.type};
       },
       .result = &inputs_of_all},
      {.name = "all_gather_v",
       .shape = &gathering_shape,
       .bus_factor = &without_own,
       .make = [](asked of) -> operation {
         return all_gather_v{of.memory.send, of.memory.recv, equal_parts(of), of.type};
       },
       .result = &inputs_of_all},
      {.name = "reduce_scatter",
       .reduces = true,
       .shape = &scattering_shape,
       .bus_factor = &without_own,
       .make = [](asked of) -> operation {
         return reduce_scatter{of.memory.send, of.memory.recv, of.count, of.type, of.op, of.own_factor()};
       },
       .result = &reduced_part},
      {.name = "reduce_scatter_v",
       .reduces = true,
       .shape = &scattering_shape,
       .bus_factor = &without_own,
       .make = [](asked of) -> operation {
         return reduce_scatter_v{of.memory.send, of.memory.recv, equal_parts(of), of.type, of.op, of.own_factor()};
       },
       .result = &reduced_part},
      {.name = "all_to_all",
       .has_in_place = false,
       .shape = &exchanging_shape,
       .bus_factor = &without_own,
       .make = [](asked of) -> operation {
         return all_to_all{of.memory.send, of.memory.recv, of.count, of.type};
       },
       .result = &parts_from_each},
      {.name = "all_to_all_v",
       .has_in_place = false,
       .shape = &exchanging_shape,
       .bus_factor = &without_own,
       .make = [](asked of) -> operation {
         return all_to_all_v{of.memory.send, of.memory.recv, equal_parts(of), equal_parts(of), of.type};
       },
       .result = &parts_from_each},
      {.name = "gather",
       .has_root = true,
       .shape = &gathering_shape,
       .bus_factor = &without_own,
       .make = [](asked of) -> operation {
         return gather{of.memory.send, of.memory.recv, of.count, of.type, rank{of.root}};
       },
       .result = &inputs_of_all_at_root},
      {.name = "scatter",
       .has_root = true,
       .shape = &scattering_shape,
       .bus_factor = &without_own,
       .make = [](asked of) -> operation {
         return scatter{of.memory.send, of.memory.recv, of.count, of.type, rank{of.root}};
       },
       .result = &part_of_root_s_input},
      {.name = "gather_v",
       .has_root = true,
       .shape = &gathering_shape,
       .bus_factor = &without_own,
       .make = [](asked of) -> operation {
         return gather_v{of.memory.send, of.memory.recv, equal_parts(of), of.type, rank{of.root}};
       },
       .result = &inputs_of_all_at_root},
      {.name = "scatter_v",
       .has_root = true,
       .shape = &scattering_shape,
       .bus_factor = &without_own,
       .make = [](asked of) -> operation {
         return scatter_v{of.memory.send, of.memory.recv, equal_parts(of), of.type, rank{of.root}};
       },
       .result = &part_of_root_s_input},
      {.name = "sendrecv",
       .has_in_place = false,
       .shape = &whole_shape,
       .bus_factor = &once,
       .make = [](asked of) -> operation {
         return group{{send{of.memory.send, of.count, of.type, rank{(of.self + 1) % of.ranks}},
                       recv{of.memory.recv, of.count, of.type, rank{before(of.self, of.ranks)}}}};
       },
       .result = &input_of_the_rank_before},
      {.name = "barrier",
       .has_in_place = false,
       .moves_data = false,
       .shape = [](std::size_t, int, std::size_t) { return bench_shape{}; },
       .bus_factor = &once,
       .make = [](asked) -> operation { return barrier{}; },
       .result = [](const bench_shape&, const bench_rank&) { return value_parts{}; }},
  };
  return known;
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
    const bench_rank context{.self = ranks[i].value(), .ranks = world_.size(), .root = one.root};
    for (const value_part& part : one.what->result(one.shape, context)) {
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
