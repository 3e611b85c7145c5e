#include "bench_operation.hpp"

#include <algorithm>

namespace troupe::program {

std::size_t bench_shape::size(std::size_t element_bytes) const noexcept {
  return std::max(send_count, recv_count) * element_bytes;
}

std::span<const bench_operation> bench_operations() noexcept {
  static constexpr bench_operation known[] = {
      {.name = "all_reduce",
       .shape = [](std::size_t elements, int) -> bench_shape {
         return {.count = elements, .send_count = elements, .recv_count = elements};
       },
       .bus_factor = [](int ranks) { return 2.0 * (ranks - 1) / ranks; },
       .make = [](const rank_memory& memory, std::size_t count, dtype type, reduction op) -> operation {
         return all_reduce{memory.send, memory.recv, count, type, op};
       },
       .result = [](const bench_shape& shape, int, int) -> std::vector<result_part> {
         return {{.count = shape.recv_count}};
       }},
  };
  return known;
}

} // namespace troupe::program
