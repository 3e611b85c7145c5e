// What one rank may ask, judged byte by byte and by another way than validate()'s own.
#include "properties/drawn_request.hpp"
#include "properties/property.hpp"

#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/operation/signature.hpp>
#include <troupe/collectives/operation/validation.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <optional>
#include <vector>

using namespace troupe;
using troupe::tests::check_property;

namespace {

constexpr std::size_t memory_bytes = 512;

partition drawn_partition(int world_size) {
  const auto size = static_cast<std::size_t>(world_size);
  partition made =
      partition::packed(*rc::gen::container<std::vector<std::size_t>>(size, rc::gen::inRange<std::size_t>(0, 6)));
  if (*rc::gen::inRange(0, 3) == 0) // anywhere, also on top of each other
    made.displacements = *rc::gen::container<std::vector<std::size_t>>(size, rc::gen::inRange<std::size_t>(0, 12));
  return made;
}

/// Some of \p memory, from \p begin.
buffer drawn_range(const buffer& memory, std::size_t begin) {
  const std::size_t from = std::min(begin, memory.size_bytes());
  return memory.slice(from, *rc::gen::inRange<std::size_t>(0, memory.size_bytes() - from + 1));
}

template <class Operation>
Operation drawn(int world_size) {
  Operation made;
  if constexpr (requires { made.type; })
    made.type = *rc::gen::elementOf(std::vector<dtype>(std::begin(all_dtypes), std::end(all_dtypes)));
  if constexpr (requires { made.count; }) made.count = *rc::gen::inRange<std::size_t>(0, 12);
  if constexpr (requires { made.root; }) made.root = rank{*rc::gen::inRange(0, world_size)};
  if constexpr (requires { made.peer; }) made.peer = rank{*rc::gen::inRange(0, world_size)};
  if constexpr (requires { made.send_parts; }) made.send_parts = drawn_partition(world_size);
  if constexpr (requires { made.recv_parts; }) made.recv_parts = drawn_partition(world_size);
  return made;
}

/// Any operation on ranges of \p memory, which lie where they are in place, or some bytes astray.
operation drawn_operation(const rank_context& at, const buffer& memory) {
  const auto complete = [&](auto what) -> operation {
    if constexpr (requires { what.send; }) {
      const std::size_t width = size_bytes(what.type);
      const auto begin = *rc::gen::inRange<std::size_t>(0, 16) * *rc::gen::element<std::size_t>(1, 8);
      what.send = what.recv = buffer{};
      const auto offset = footprint_of(what, at.self, at.world_size).in_place.value_or(0);
      const std::size_t distance = static_cast<std::size_t>(std::abs(offset)) * width;
      const std::size_t astray = *rc::gen::element<std::size_t>(0, 0, 1, 8, 64, 200);
      what.send = drawn_range(memory, begin + (offset > 0 ? distance : 0));
      what.recv = drawn_range(memory, begin + (offset < 0 ? distance : 0) + astray);
    } else if constexpr (requires { what.memory; }) {
      what.memory = drawn_range(memory, *rc::gen::inRange<std::size_t>(0, memory_bytes));
    }
    return what;
  };
  switch (*rc::gen::inRange(0, 13)) {
    case 0: return complete(drawn<all_reduce>(at.world_size));
    case 1: return complete(drawn<reduce>(at.world_size));
    case 2: return complete(drawn<broadcast>(at.world_size));
    case 3: return complete(drawn<all_gather>(at.world_size));
    case 4: return complete(drawn<reduce_scatter>(at.world_size));
    case 5: return complete(drawn<all_to_all>(at.world_size));
    case 6: return complete(drawn<gather>(at.world_size));
    case 7: return complete(drawn<scatter>(at.world_size));
    case 8: return complete(drawn<all_gather_v>(at.world_size));
    case 9: return complete(drawn<reduce_scatter_v>(at.world_size));
    case 10: return complete(drawn<all_to_all_v>(at.world_size));
    case 11: return complete(drawn<troupe::send>(at.world_size));
    default: return complete(drawn<troupe::recv>(at.world_size));
  }
}

/// Why the operation cannot be done in this memory, byte by byte; nothing where it can.
std::optional<std::string> objection(const operation& what, const rank_context& at, const buffer& memory) {
  const footprint touched = footprint_of(what, at.self, at.world_size);
  std::vector<int> readers(memory_bytes);
  std::vector<int> writers(memory_bytes);
  std::optional<std::size_t> send_begin;
  std::optional<std::size_t> recv_begin;
  for (const extent& one : touched.extents) {
    const std::size_t width = size_bytes(one.type);
    if (one.count == 0) continue;
    if (!*one.memory) return "no memory";
    if ((one.first + one.count) * width > one.memory->size_bytes()) return "too short";
    const auto base = static_cast<std::size_t>(one.memory->data() - memory.data());
    if (reinterpret_cast<std::uintptr_t>(one.memory->data()) % width != 0) return "not aligned";
    (one.written ? recv_begin : send_begin) = base;
    for (std::size_t i = 0; i < one.count * width; ++i)
      ++(one.written ? writers : readers)[base + one.first * width + i];
  }
  bool both = false;
  for (std::size_t i = 0; i < memory_bytes; ++i) {
    if (writers[i] > 1) return "written twice";
    // What is written in place is read as this rank's own part alone.
    if (writers[i] == 1 && readers[i] > 1) return "written, and read twice";
    both = both || (writers[i] == 1 && readers[i] == 1);
  }
  if (!both) return std::nullopt;
  if (!touched.in_place) return "never in place";
  const auto width = static_cast<std::ptrdiff_t>(size_bytes(touched.extents.front().type));
  if (static_cast<std::ptrdiff_t>(*send_begin) != static_cast<std::ptrdiff_t>(*recv_begin) + *touched.in_place * width)
    return "not in place";
  return std::nullopt;
}

} // namespace

TEST_CASE("property: validate() lets through exactly what fits its memory, is aligned and does not overlap",
          "[properties][collectives][ORD-2]") {
  const auto api = make_mock_driver({.device_count = 1});
  const auto gpu = device::open(api, device_id{0});
  const buffer memory = memory_pool::create(gpu)->allocate(memory_bytes);
  int accepted = 0;
  int overlapping = 0;
  check_property(
      "what fits",
      [&] {
        const int world_size = *rc::gen::inRange(1, 6);
        const rank_context at{.self = rank{*rc::gen::inRange(0, world_size)}, .world_size = world_size, .where = *gpu};
        const operation what = drawn_operation(at, memory);
        const auto wanted = objection(what, at, memory);
        const error seen = validate(what, at);
        RC_LOG() << describe(what) << ": " << wanted.value_or("fits") << "; " << seen.text;
        RC_ASSERT(static_cast<bool>(seen) == wanted.has_value());
        RC_ASSERT(!seen || (seen.code == errc::invalid_argument && seen.effect == effect::rejected));
        accepted += wanted ? 0 : 1;
        overlapping += wanted && wanted->find("place") != std::string::npos ? 1 : 0;
      },
      50);
  CHECK(accepted > 0);
  CHECK(overlapping > 0);
}

TEST_CASE("property: ranks agree until one field of one of them differs by one", "[properties][collectives][ORD-2]") {
  const auto api = make_mock_driver({.device_count = 1});
  const buffer memory = memory_pool::create(device::open(api, device_id{0}))->allocate(tests::arena_bytes);
  check_property(
      "agreement",
      [&] {
        const std::vector<buffer> arenas(static_cast<std::size_t>(*rc::gen::inRange(2, 5)), memory);
        const auto parts = tests::draw_parts(static_cast<int>(arenas.size()), 4);
        auto asked = tests::lay_out(parts, arenas, *rc::gen::arbitrary<bool>()).asked;
        RC_ASSERT(!check_agreement(asked));
        RC_PRE(tests::plant_mismatch(asked));
        const error seen = check_agreement(asked);
        for (const operation& one : asked) RC_LOG() << describe(one) << '\n';
        RC_ASSERT(seen.code == errc::mismatch);
        RC_ASSERT(!seen.text.empty());
      },
      20);
}
