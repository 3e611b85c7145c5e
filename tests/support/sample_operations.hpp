/// Provides one sample of each operation that moves data between ranks, for test sweeps.
#pragma once

#include <troupe/collectives/operation/operation.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace troupe::tests {

/// The rank and the size for which a sample is made. Buffers hold sample_room() elements.
struct sample_place {
  int self = 0;
  int world_size = 1;
  std::size_t count = 0;
  dtype type = dtype::i32;
};

/// Returns the count of rank r's part of a v-form. The counts differ a lot, and some are 0.
[[nodiscard]] inline std::size_t sample_part(std::size_t count, int r) {
  return r % 3 == 1 ? 0 : count + static_cast<std::size_t>(r) * 3 * (count > 0 ? 1 : 0);
}

/// Returns a partition with a gap of one element behind each part.
[[nodiscard]] inline partition sample_parts(const std::vector<std::size_t>& counts) {
  partition made;
  std::size_t next = 0;
  for (const std::size_t one : counts) {
    made.counts.push_back(one);
    made.displacements.push_back(next);
    next += one + 1;
  }
  return made;
}

[[nodiscard]] inline partition sample_parts(const sample_place& at) {
  std::vector<std::size_t> counts;
  for (int r = 0; r < at.world_size; ++r) counts.push_back(sample_part(at.count, r));
  return sample_parts(counts);
}

/// Returns the number of elements that rank \p from sends to rank \p to in an all_to_all_v.
[[nodiscard]] inline std::size_t sample_crossing(std::size_t count, int from, int to) {
  return count > 0 ? count + static_cast<std::size_t>(from) * 2 + static_cast<std::size_t>(to) : 0;
}

[[nodiscard]] inline std::size_t sample_room(const sample_place& at) {
  const auto size = static_cast<std::size_t>(at.world_size);
  return size * (at.count + 3 * size + 1);
}

/// A sample operation, with a function that makes a rank's part.
struct sample_operation {
  std::string_view name;
  operation (*make)(const operand& send, const operand& recv, const sample_place& at);
};

inline const std::vector<sample_operation>& sample_operations() {
  using p = const sample_place&;
  using o = const operand&;
  static const std::vector<sample_operation> all{
      {"all_reduce",
       [](o s, o r, p at) -> operation {
         return all_reduce{.send = s, .recv = r, .count = at.count, .type = at.type};
       }},
      {"reduce",
       [](o s, o r, p at) -> operation {
         return reduce{.send = s, .recv = r, .count = at.count, .type = at.type, .root = rank{at.world_size - 1}};
       }},
      {"broadcast",
       [](o s, o r, p at) -> operation {
         return broadcast{.send = s, .recv = r, .count = at.count, .type = at.type, .root = rank{at.world_size / 2}};
       }},
      {"all_gather",
       [](o s, o r, p at) -> operation {
         return all_gather{.send = s, .recv = r, .count = at.count, .type = at.type};
       }},
      {"reduce_scatter",
       [](o s, o r, p at) -> operation {
         return reduce_scatter{.send = s, .recv = r, .count = at.count, .type = at.type, .op = reduction::max};
       }},
      {"all_to_all",
       [](o s, o r, p at) -> operation {
         return all_to_all{.send = s, .recv = r, .count = at.count, .type = at.type};
       }},
      {"gather",
       [](o s, o r, p at) -> operation {
         return gather{.send = s, .recv = r, .count = at.count, .type = at.type, .root = rank{0}};
       }},
      {"scatter",
       [](o s, o r, p at) -> operation {
         return scatter{.send = s, .recv = r, .count = at.count, .type = at.type, .root = rank{at.world_size - 1}};
       }},
      {"all_gather_v",
       [](o s, o r, p at) -> operation {
         return all_gather_v{.send = s, .recv = r, .recv_parts = sample_parts(at), .type = at.type};
       }},
      {"reduce_scatter_v",
       [](o s, o r, p at) -> operation {
         return reduce_scatter_v{.send = s, .recv = r, .send_parts = sample_parts(at), .type = at.type};
       }},
      {"gather_v",
       [](o s, o r, p at) -> operation {
         return gather_v{
             .send = s, .recv = r, .recv_parts = sample_parts(at), .type = at.type, .root = rank{at.world_size - 1}};
       }},
      {"scatter_v",
       [](o s, o r, p at) -> operation {
         return scatter_v{.send = s, .recv = r, .send_parts = sample_parts(at), .type = at.type, .root = rank{0}};
       }},
      {"all_to_all_v",
       [](o s, o r, p at) -> operation {
         std::vector<std::size_t> sent;
         std::vector<std::size_t> received;
         for (int other = 0; other < at.world_size; ++other) {
           sent.push_back(sample_crossing(at.count, at.self, other));
           received.push_back(sample_crossing(at.count, other, at.self));
         }
         return all_to_all_v{.send = s,
                             .recv = r,
                             .send_parts = sample_parts(sent),
                             .recv_parts = sample_parts(received),
                             .type = at.type};
       }},
      {"a ring of sends in a group",
       [](o s, o r, p at) -> operation {
         const int next = (at.self + 1) % at.world_size;
         const int last = (at.self + at.world_size - 1) % at.world_size;
         return group{{send{.memory = s, .count = at.count, .type = at.type, .peer = rank{next}, .tag = 3},
                       recv{.memory = r, .count = at.count, .type = at.type, .peer = rank{last}, .tag = 3}}};
       }},
      {"a group of collectives",
       [](o s, o r, p at) -> operation {
         const std::size_t half = at.count / 2;
         const std::size_t width = size_bytes(at.type);
         const auto front = [&](const operand& one) { return operand{one.memory.slice(0, half * width)}; };
         const auto back = [&](const operand& one) { return operand{one.memory.slice(half * width, half * width)}; };
         return group{{all_reduce{.send = front(s), .recv = front(r), .count = half, .type = at.type},
                       broadcast{.send = back(s), .recv = back(r), .count = half, .type = at.type}}};
       }},
  };
  return all;
}

} // namespace troupe::tests
