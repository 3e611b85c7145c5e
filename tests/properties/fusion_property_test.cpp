// Batches of any operations, judged byte by byte: what is fused never races, and nothing is lost or overtaken.
#include "properties/property.hpp"

#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/pipeline/fusion_composer.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/processes/order/fusion_facts.hpp>

#include <array>
#include <vector>

namespace troupe::tests::fusion_property_test {

using troupe::tests::check_property;

namespace {

constexpr std::size_t memory_bytes = 256;
constexpr int world_size = 3;

buffer drawn_range(const buffer& memory, std::size_t bytes) {
  return memory.slice(*rc::gen::inRange<std::size_t>(0, memory.size_bytes() - bytes + 1), bytes);
}

/// One rank's part; the composer does not ask whether ranks agree.
operation drawn_part(const buffer& memory, int self) {
  const auto count = *rc::gen::inRange<std::size_t>(0, 9);
  const auto n = static_cast<std::size_t>(world_size);
  const buffer one = drawn_range(memory, count);
  const buffer other = drawn_range(memory, count);
  switch (*rc::gen::inRange(0, 9)) {
    case 0: return all_reduce{.send = one, .recv = one, .count = count, .type = dtype::u8};
    case 1: return all_reduce{.send = one, .recv = other, .count = count, .type = dtype::u8};
    case 2: return all_gather{.send = one, .recv = drawn_range(memory, n * count), .count = count, .type = dtype::u8};
    case 3: {
      const buffer whole = drawn_range(memory, n * count);
      const buffer own = whole.slice(static_cast<std::size_t>(self) * count, count);
      return reduce_scatter{.send = whole, .recv = own, .count = count, .type = dtype::u8};
    }
    case 4: return send{.memory = one, .count = count, .type = dtype::u8, .peer = rank{0}};
    case 5: return recv{.memory = one, .count = count, .type = dtype::u8, .peer = rank{0}};
    case 6:
      return group{{recv{.memory = one, .count = count, .type = dtype::u8, .peer = rank{0}},
                    send{.memory = other, .count = count, .type = dtype::u8, .peer = rank{0}}}};
    case 7: { // parts of all lengths, from the front or from the end
      const bool backwards = *rc::gen::arbitrary<bool>();
      partition parts;
      std::size_t room = 0;
      for (std::size_t i = 0; i < n; ++i) {
        parts.counts.push_back(i == static_cast<std::size_t>(self) ? count : *rc::gen::inRange<std::size_t>(0, 6));
        room += parts.counts.back();
      }
      std::size_t behind = 0;
      for (const std::size_t each : parts.counts) {
        behind += each;
        parts.displacements.push_back(backwards ? room - behind : behind - each);
      }
      return all_gather_v{
          .send = one, .recv = drawn_range(memory, room), .recv_parts = std::move(parts), .type = dtype::u8};
    }
    default: return *rc::gen::inRange(0, 3) == 0 ? operation{barrier{}} : operation{all_reduce{}};
  }
}

/// One rank's part whose operands are the same, or apart: operand_composer may take other overlaps within an operation
/// for larger ones.
operation drawn_sum(const buffer& memory) {
  const auto count = *rc::gen::inRange<std::size_t>(0, 9);
  const std::size_t half = memory_bytes / 2;
  switch (*rc::gen::inRange(0, 8)) {
    case 0: return barrier{};
    case 1:
    case 2: {
      const buffer both = drawn_range(memory, count);
      return all_reduce{.send = both, .recv = both, .count = count, .type = dtype::u8};
    }
    default:
      return all_reduce{.send = drawn_range(memory.slice(0, half), count),
                        .recv = drawn_range(memory.slice(half, half), count),
                        .count = count,
                        .type = dtype::u8};
  }
}

/// How often each byte is read and written by an operation.
struct traffic {
  std::array<bool, memory_bytes> read{};
  std::array<bool, memory_bytes> written{};
};

traffic traffic_of(const operation& what, int self, const buffer& memory) {
  traffic found;
  auto note = [&](const extent& one) {
    for (std::size_t i = 0; i < one.count; ++i) {
      const auto at = static_cast<std::size_t>(one.memory->data() - memory.data()) + one.first + i;
      (one.written ? found.written : found.read).at(at) = true;
    }
  };
  visit_extents(what, rank{self}, world_size, note);
  return found;
}

bool races(const traffic& a, const traffic& b) {
  for (std::size_t i = 0; i < memory_bytes; ++i)
    if ((a.written[i] && (b.read[i] || b.written[i])) || (b.written[i] && a.read[i])) return true;
  return false;
}

} // namespace

TEST_CASE("property: batches divide what is released in its order, hold no race on any rank, and end for a reason",
          "[properties][fusion][ORD-1]") {
  const auto api = make_mock_driver({.device_count = world_size});
  std::vector<buffer> memory;
  for (int i = 0; i < world_size; ++i)
    memory.push_back(memory_pool::create(device::open(api, device_id{i}))->allocate(memory_bytes));
  int fused = 0;
  int cut = 0;
  check_property(
      "batches",
      [&] {
        const auto count = *rc::gen::inRange<std::size_t>(0, 12);
        std::vector<std::vector<operation>> asked(count);
        std::vector<fusion_part> parts;
        std::vector<std::size_t> ends;
        for (auto& ranks : asked) {
          for (int r = 0; r < world_size; ++r) ranks.push_back(drawn_part(memory[static_cast<std::size_t>(r)], r));
          for (std::size_t r = 0; r < ranks.size(); ++r) parts.push_back({rank{static_cast<int>(r)}, &ranks[r]});
          ends.push_back(parts.size());
        }
        const fusion_limits limits{.mode = *rc::gen::element(fusion::off, fusion::plans, fusion::free),
                                   .max_operations = *rc::gen::inRange<std::size_t>(1, 8),
                                   .max_bytes = *rc::gen::inRange<std::size_t>(1, 40),
                                   .max_operation_bytes = *rc::gen::inRange<std::size_t>(1, 30)};
        std::vector<std::size_t> batches;
        operand_composer{world_size, limits}.plan(parts, ends, batches);

        RC_ASSERT(count == 0 || (!batches.empty() && batches.back() == count));
        std::size_t begin = 0;
        for (const std::size_t end : batches) {
          RC_ASSERT(end > begin); // in order, none left out, none empty
          RC_ASSERT(end - begin <= limits.max_operations);
          if (end - begin > 1) {
            ++fused;
            RC_ASSERT(limits.mode != fusion::off);
            for (std::size_t i = begin; i < end; ++i)
              for (std::size_t r = 0; r < memory.size(); ++r) {
                RC_ASSERT(!std::holds_alternative<barrier>(asked[i][r]));
                const traffic mine = traffic_of(asked[i][r], static_cast<int>(r), memory[r]);
                for (std::size_t k = begin; k < i; ++k)
                  RC_ASSERT(!races(mine, traffic_of(asked[k][r], static_cast<int>(r), memory[r])));
              }
          }
          cut += end < count ? 1 : 0;
          begin = end;
        }
        // A front of what is released is divided as it is divided in the whole: no look ahead.
        if (count < 2) return;
        std::vector<std::size_t> front;
        const std::size_t shorter = count - 1;
        operand_composer{world_size, limits}.plan(std::span{parts}.first(ends[shorter - 1]),
                                                  std::span{ends}.first(shorter), front);
        std::vector<std::size_t> expected;
        for (const std::size_t end : batches)
          if (end < shorter) expected.push_back(end);
        expected.push_back(shorter);
        RC_ASSERT(front == expected);
      },
      10);
  CHECK(fused > 0);
  CHECK(cut > 0);
}

TEST_CASE("property: the facts that ranks report give the same launches as their operands",
          "[properties][fusion][ORD-1]") {
  const auto api = make_mock_driver({.device_count = world_size});
  std::vector<buffer> memory;
  for (int i = 0; i < world_size; ++i)
    memory.push_back(memory_pool::create(device::open(api, device_id{i}))->allocate(memory_bytes));
  int fused = 0;
  check_property(
      "facts",
      [&] {
        const auto count = *rc::gen::inRange<std::size_t>(2, 12);
        const fusion_limits limits{.mode = fusion::free,
                                   .max_operations = *rc::gen::inRange<std::size_t>(2, 8),
                                   .max_bytes = *rc::gen::inRange<std::size_t>(1, 60),
                                   .max_operation_bytes = *rc::gen::inRange<std::size_t>(1, 30)};
        std::vector<std::vector<operation>> asked(count);
        std::vector<fusion_part> parts;
        std::vector<std::size_t> ends;
        for (auto& ranks : asked) {
          for (int r = 0; r < world_size; ++r) ranks.push_back(drawn_sum(memory[static_cast<std::size_t>(r)]));
          for (std::size_t r = 0; r < ranks.size(); ++r) parts.push_back({rank{static_cast<int>(r)}, &ranks[r]});
          ends.push_back(parts.size());
        }
        std::vector<std::size_t> batches;
        operand_composer{world_size, limits}.plan(parts, ends, batches);

        std::vector<fusion_examiner> examiners;
        for (int r = 0; r < world_size; ++r) examiners.emplace_back(rank{r}, world_size, limits);
        fusion_composer composer;
        composer.begin(world_size, limits.max_operations, limits.max_bytes);
        std::vector<std::size_t> reported;
        for (std::size_t i = 0; i < count; ++i) {
          std::vector<fusion_composer::part> next;
          for (std::size_t r = 0; r < asked[i].size(); ++r)
            next.push_back({r, i + 1, examiners[r].examine(asked[i][r], i + 1, 0)});
          if (composer.add(next))
            ++fused;
          else if (i > 0)
            reported.push_back(i);
        }
        reported.push_back(count);
        RC_ASSERT(reported == batches);
      },
      10);
  CHECK(fused > 0);
}

} // namespace troupe::tests::fusion_property_test
