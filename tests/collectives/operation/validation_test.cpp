// ORD-2, BUF-2: what is wrong with a request is found before anything of it is launched, and the text names the value,
// the limit and the remedy.
#include "support/outcomes.hpp"

#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/operation/signature.hpp>
#include <troupe/collectives/operation/validation.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests::validation_test {

using Catch::Matchers::ContainsSubstring;

namespace {

struct place {
  explicit place(const std::shared_ptr<driver>& api, int id)
    : gpu{device::open(api, device_id{id})}, pool{memory_pool::create(gpu)} {}
  [[nodiscard]] buffer make(std::size_t size_bytes) const { return pool->allocate(size_bytes); }

  std::shared_ptr<device> gpu;
  std::shared_ptr<memory_pool> pool;
};

struct validation_rig {
  std::shared_ptr<driver> api = make_mock_driver({.device_count = 2});
  place mine{api, 0};
  place other{api, 1};
  place foreign{make_mock_driver({.device_count = 2}), 0};

  [[nodiscard]] error check(const operation& what) const {
    return validate(what, {.self = rank{0}, .world_size = 2, .where = *mine.gpu});
  }
  [[nodiscard]] shared_event foreign_event() const {
    const stream elsewhere{foreign.gpu};
    return record_event(foreign.gpu, elsewhere);
  }
};

all_reduce sum(operand send, operand recv, std::size_t count, dtype type = dtype::f32) {
  return {.send = std::move(send), .recv = std::move(recv), .count = count, .type = type, .op = reduction::sum};
}

void require_refusal(const error& seen, errc code, const std::vector<std::string>& words) {
  CAPTURE(seen.text);
  CHECK(seen.code == code);
  CHECK(seen.effect == effect::rejected); // ONE-2: nothing has run
  for (const auto& word : words) CHECK_THAT(seen.text, ContainsSubstring(word));
}

} // namespace

TEST_CASE("valid operations are accepted: in place, out of place, neighbours, nothing at all", "[collectives][ORD-2]") {
  const validation_rig rig;
  const buffer memory = rig.mine.make(64);
  for (const dtype type : all_dtypes) {
    const std::size_t count = 32 / size_bytes(type);
    CHECK_FALSE(rig.check(sum(memory, memory, count, type)));
    CHECK_FALSE(rig.check(sum(memory.slice(0, 32), memory.slice(32, 32), count, type)));
    CHECK_FALSE(rig.check(sum(memory.slice(32, 32), memory.slice(0, 32), count, type)));
    CHECK_FALSE(rig.check(sum(memory, memory, 0, type)));
    CHECK_FALSE(rig.check(sum(buffer{}, buffer{}, 0, type)));
    CHECK_FALSE(rig.check(sum(memory, memory.slice(1, 8), 0, type))); // nothing overlaps and nothing is aligned
  }
  CHECK_FALSE(rig.check(barrier{}));
  const buffer host = allocate_pinned(rig.mine.gpu, 64);
  CHECK_FALSE(rig.check(copy{memory, host}));
  CHECK_FALSE(rig.check(copy{host.slice(3, 5), memory}));
  CHECK_FALSE(rig.check(copy{memory.slice(0, 32), memory.slice(32, 32)}));
  CHECK_FALSE(rig.check(copy{memory.slice(0, 0), memory}));
  CHECK_FALSE(rig.check(copy{buffer{}, buffer{}}));
}

TEST_CASE("a dtype or reduction that does not exist is refused with those that do", "[collectives][ORD-2]") {
  const validation_rig rig;
  const buffer memory = rig.mine.make(64);
  all_reduce what = sum(memory, memory, 1);
  what.type = static_cast<dtype>(77);
  require_refusal(rig.check(what), errc::invalid_argument,
                  {"77", "u8, i8, i32, u32, i64, u64, f16, f32, f64, bf16, f8e4m3, f8e5m2"});
  what = sum(memory, memory, 1);
  what.op = static_cast<reduction>(200);
  require_refusal(rig.check(what), errc::invalid_argument, {"200", "sum, prod, min, max, avg, pre_mul_sum"});
}

TEST_CASE("a count beyond a buffer is refused, however large", "[collectives][ORD-2]") {
  const validation_rig rig;
  const buffer small = rig.mine.make(10);
  const buffer large = rig.mine.make(1024);
  require_refusal(rig.check(sum(small, large, 3)), errc::invalid_argument,
                  {"3", "send", "10 bytes", "2 elements of f32"});
  require_refusal(rig.check(sum(large, small, 3)), errc::invalid_argument,
                  {"3", "recv", "10 bytes", "2 elements of f32"});
  CHECK_FALSE(rig.check(sum(small, large, 2)));
  for (const dtype type : all_dtypes) {
    // The product with the element size wraps around for these: to 0, to little, to nearly all.
    for (const std::size_t count : {SIZE_MAX, SIZE_MAX / size_bytes(type), SIZE_MAX - size_bytes(type),
                                    SIZE_MAX / 4 + 1, SIZE_MAX / 8 + 1, SIZE_MAX / 2 + 1}) {
      CAPTURE(to_string(type), count);
      require_refusal(rig.check(sum(large, large, count, type)), errc::invalid_argument, {std::to_string(count)});
    }
  }
}

TEST_CASE("a missing buffer is refused when there is something to reduce", "[collectives][ORD-2]") {
  const validation_rig rig;
  const buffer memory = rig.mine.make(64);
  require_refusal(rig.check(sum(buffer{}, memory, 5)), errc::invalid_argument, {"send", "empty", "5"});
  require_refusal(rig.check(sum(memory, buffer{}, 5)), errc::invalid_argument, {"recv", "empty", "5"});
}

TEST_CASE("a buffer of another device, of another driver or of an earlier life is refused", "[collectives][BUF-2]") {
  const validation_rig rig;
  const buffer memory = rig.mine.make(64);
  const buffer away = rig.other.make(64);
  const buffer strange = rig.foreign.make(64);
  const std::size_t count = GENERATE(as<std::size_t>{}, 0, 4); // even when it would not be touched
  require_refusal(rig.check(sum(away, memory, count)), errc::wrong_device,
                  {"send", "device 1", "device is 0", "own device"});
  require_refusal(rig.check(sum(memory, away, count)), errc::wrong_device, {"recv", "device 1", "device is 0"});
  require_refusal(rig.check(sum(strange, memory, count)), errc::wrong_device, {"send", "mock", "another runtime"});
  require_refusal(rig.check(sum(memory, strange, count)), errc::wrong_device, {"recv", "another runtime"});
  require_refusal(rig.check(copy{memory, strange}), errc::wrong_device, {"destination", "another runtime"});

  const buffer host = allocate_pinned(rig.mine.gpu, 64);
  rig.mine.gpu->declare_memory_lost();
  require_refusal(rig.check(sum(memory, memory, count)), errc::stale_buffer, {"send", "device 0", "allocate it again"});
  const buffer fresh = rig.mine.make(64);
  CHECK_FALSE(rig.check(sum(fresh, fresh, count)));
  require_refusal(rig.check(sum(fresh, memory, count)), errc::stale_buffer, {"recv", "allocate it again"});
  require_refusal(rig.check(copy{memory, fresh}), errc::stale_buffer, {"source", "allocate it again"});
  CHECK_FALSE(rig.check(copy{host, fresh})); // host memory has lost nothing
}

TEST_CASE("host memory is as good as the device's, but for a factor", "[collectives][staging][BUF-2]") {
  const validation_rig rig;
  const buffer memory = rig.mine.make(64);
  const buffer pinned = allocate_pinned(rig.mine.gpu, 64);
  std::vector<float> numbers(16);
  const buffer pageable = adopt_host(rig.mine.gpu, numbers.data(), 64, nullptr);
  for (const buffer& host : {pinned, pageable}) {
    CHECK_FALSE(rig.check(sum(host, memory, 16)));
    CHECK_FALSE(rig.check(sum(memory, host, 16)));
    CHECK_FALSE(rig.check(sum(host, host, 16)));
    require_refusal(rig.check(sum(host, memory, 17)), errc::invalid_argument, {"send", "too short", "17"});
    require_refusal(rig.check(sum(host.slice(0, 32), host.slice(16, 32), 8)), errc::invalid_argument,
                    {"overlap", "in place"});
    require_refusal(rig.check(sum(host.slice(1, 32), memory, 4)), errc::invalid_argument, {"send", "not aligned"});
    CHECK_FALSE(rig.check(copy{host, memory}));
    CHECK_FALSE(rig.check(copy{memory, host}));
    CHECK_FALSE(rig.check(group{{sum(host, memory, 4)}}));
    all_reduce scaled = sum(memory, memory, 4);
    scaled.op = reduction::pre_mul_sum;
    scaled.factor = factor::on_device(host);
    require_refusal(rig.check(scaled), errc::invalid_argument, {"factor", to_string(host.kind()).data(), "by value"});
  }
  CHECK_FALSE(rig.check(copy{pinned, pageable}));
  require_refusal(rig.check(sum(allocate_pinned(rig.foreign.gpu, 64), memory, 4)), errc::wrong_device,
                  {"send", "another runtime"});
}

TEST_CASE("a copy from or to another device is let through where its own device is the other end",
          "[collectives][staging][BUF-2]") {
  const validation_rig rig;
  const buffer here = rig.mine.make(64);
  const buffer away = rig.other.make(64);
  const buffer host = allocate_pinned(rig.mine.gpu, 64);
  CHECK_FALSE(rig.check(copy{here, away}));
  CHECK_FALSE(rig.check(copy{away, here}));
  require_refusal(rig.check(copy{away, rig.other.make(64)}), errc::wrong_device,
                  {"source", "device 1", "device 0", "ask the rank of device 1"});
  require_refusal(rig.check(copy{host, away}), errc::wrong_device, {"destination", "ask the rank of device 1"});
  require_refusal(rig.check(copy{away, host}), errc::wrong_device, {"source", "ask the rank of device 1"});
  rig.other.gpu->declare_memory_lost();
  require_refusal(rig.check(copy{here, away}), errc::stale_buffer, {"destination", "device 1", "allocate it again"});

  const auto apart = make_mock_driver(
      {.device_count = 2, .peers = [](device_id, device_id) { return peer_description{.access = false}; }});
  const place first{apart, 0};
  const place second{apart, 1};
  const error refusal =
      validate(copy{first.make(64), second.make(64)}, {.self = rank{0}, .world_size = 2, .where = *first.gpu});
  require_refusal(refusal, errc::unsupported, {"device 0", "no access", "device 1", "pinned"});
}

TEST_CASE("a slice that is not aligned to its elements is refused", "[collectives][ORD-2]") {
  const validation_rig rig;
  const buffer memory = rig.mine.make(64);
  for (const dtype type : all_dtypes) {
    CAPTURE(to_string(type));
    const buffer odd = memory.slice(1, 16);
    if (size_bytes(type) == 1) {
      CHECK_FALSE(rig.check(sum(odd, odd, 16, type)));
      continue;
    }
    require_refusal(rig.check(sum(odd, odd, 1, type)), errc::invalid_argument,
                    {"send", "not aligned", std::to_string(size_bytes(type)), "slice at a multiple"});
    const buffer half = memory.slice(size_bytes(type) / 2, 16);
    require_refusal(rig.check(sum(memory.slice(48, 16), half, 1, type)), errc::invalid_argument,
                    {"recv", "not aligned"});
  }
}

TEST_CASE("ranges that overlap without being the same are refused", "[collectives][ORD-2]") {
  const validation_rig rig;
  const buffer memory = rig.mine.make(64);
  require_refusal(rig.check(sum(memory, memory.slice(4, 60), 15)), errc::invalid_argument, {"overlap", "in place"});
  require_refusal(rig.check(sum(memory.slice(4, 60), memory, 15)), errc::invalid_argument, {"overlap", "in place"});
  CHECK_FALSE(rig.check(sum(memory, memory.slice(4, 60), 1))); // what is used does not
  require_refusal(rig.check(copy{memory, memory}), errc::invalid_argument, {"overlap", "64", "do not touch"});
  require_refusal(rig.check(copy{memory.slice(0, 33), memory.slice(32, 32 + 0).slice(0, 32)}), errc::invalid_argument,
                  {"33", "32"});
  require_refusal(rig.check(copy{memory.slice(0, 32), memory.slice(31, 33)}), errc::invalid_argument, {"overlap"});
}

TEST_CASE("a copy into less room than it needs is refused", "[collectives][ORD-2]") {
  const validation_rig rig;
  const buffer host = allocate_pinned(rig.mine.gpu, 65);
  require_refusal(rig.check(copy{host, rig.mine.make(64)}), errc::invalid_argument,
                  {"65 bytes", "64", "slice the source"});
  require_refusal(rig.check(copy{host, buffer{}}), errc::invalid_argument, {"65 bytes", "0"});
}

TEST_CASE("a ready event of another driver is refused", "[collectives][BUF-2]") {
  const validation_rig rig;
  const buffer memory = rig.mine.make(64);
  const buffer host = allocate_pinned(rig.mine.gpu, 64);
  const operand marked{memory, rig.foreign_event()};
  require_refusal(rig.check(sum(marked, memory, 1)), errc::wrong_device, {"send", "ready event", "record it with"});
  require_refusal(rig.check(sum(memory, marked, 1)), errc::wrong_device, {"recv", "ready event"});
  require_refusal(rig.check(copy{marked, host}), errc::wrong_device, {"source", "ready event"});
  require_refusal(rig.check(copy{host, marked}), errc::wrong_device, {"destination", "ready event"});
  const stream elsewhere{rig.other.gpu};
  CHECK_FALSE(rig.check(sum(operand{memory, record_event(rig.other.gpu, elsewhere)}, memory, 1))); // same driver
}

TEST_CASE("ranks that ask for different things are told who asks for what", "[collectives][ORD-2]") {
  const validation_rig rig;
  const buffer memory = rig.mine.make(64);
  const auto agree = [](std::vector<operation> parts) { return check_agreement(parts); };
  const all_reduce same = sum(memory, memory, 4);
  CHECK_FALSE(agree({same, same, same}));
  CHECK_FALSE(agree({barrier{}, barrier{}}));
  CHECK_FALSE(agree({copy{memory, buffer{}}, copy{buffer{}, buffer{}}})); // each rank's own affair
  require_refusal(agree({}), errc::invalid_argument, {"one part for each rank"});
  require_refusal(agree({same, same, barrier{}}), errc::mismatch,
                  {"rank 0 asks for all_reduce of 4 f32, sum", "rank 2 for barrier", "the same operation"});
  require_refusal(agree({same, sum(memory, memory, 5)}), errc::mismatch,
                  {"of 4 f32", "rank 1 for all_reduce of 5 f32"});
  require_refusal(agree({same, sum(memory, memory, 4, dtype::i32)}), errc::mismatch, {"f32", "rank 1", "i32"});
  all_reduce other = same;
  other.op = reduction::max;
  require_refusal(agree({same, other}), errc::mismatch, {"sum", "rank 1", "max"});
  require_refusal(agree({copy{buffer{}, buffer{}}, barrier{}}), errc::mismatch,
                  {"rank 0", "copy", "rank 1", "barrier"});
}

TEST_CASE("a group is refused exactly where one part writes memory that another one uses, in any order of its memory",
          "[collectives][ORD-2][GRP-1]") {
  const validation_rig rig;
  constexpr std::size_t memory_bytes = 256;
  const buffer memory = rig.mine.make(memory_bytes);
  std::mt19937 draw{7}; // NOLINT(cert-msc51-cpp): the same groups in every run
  const auto below = [&](std::size_t limit) { return std::size_t{draw()} % limit; };
  const auto range = [&](std::size_t count) {
    const std::size_t first = 4 * below(memory_bytes / 4 - count);
    return memory.slice(first, 4 * count);
  };
  const auto part = [&]() -> operation {
    const std::size_t count = below(4); // none in every fourth
    switch (below(5)) {
      case 0: return all_gather{range(count), range(2 * count), count};
      case 1: return broadcast{range(count), range(count), count, dtype::f32, rank{static_cast<int>(below(2))}};
      case 2: return send{range(count), count, dtype::f32, rank{1}, 0};
      case 3: return sum(range(count), range(count), count);
      default: {
        const buffer in_place = range(count);
        return sum(in_place, in_place, count);
      }
    }
  };
  std::size_t refused = 0;
  std::size_t accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    group asked;
    const std::size_t wanted = 1 + below(6);
    while (asked.parts.size() < wanted)
      if (operation one = part(); !rig.check(one)) asked.parts.push_back(std::move(one));
    const auto touched = [](const operation& one) { return footprint_of(one, rank{0}, 2); };
    const auto meets = [](const extent& one, const extent& other) {
      const auto* const mine = one.memory->data() + 4 * one.first;
      const auto* const its = other.memory->data() + 4 * other.first;
      return (one.written || other.written) && one.count > 0 && other.count > 0 && mine < its + 4 * other.count &&
             its < mine + 4 * one.count;
    };
    bool is_race = false;
    for (std::size_t i = 0; i < wanted; ++i)
      for (std::size_t j = 0; j < i; ++j)
        for (const extent& one : touched(asked.parts[i]).extents)
          for (const extent& other : touched(asked.parts[j]).extents) is_race = is_race || meets(one, other);
    const error seen = rig.check(asked);
    CAPTURE(describe(asked), seen.text);
    REQUIRE(static_cast<bool>(seen) == is_race);
    if (is_race)
      require_refusal(seen, errc::invalid_argument, {"part ", " range of its ", "overlap", "one is written"});
    ++(is_race ? refused : accepted);
  }
  CHECK(refused > 300);
  CHECK(accepted > 300);
}

TEST_CASE("parts of a group that overlap are named with their arguments", "[collectives][ORD-2][GRP-1]") {
  const validation_rig rig;
  const buffer memory = rig.mine.make(64);
  const auto at = [&](std::size_t first) { return memory.slice(first, 16); };
  CHECK_FALSE(rig.check(group{{sum(at(16), at(0), 4), sum(at(16), at(32), 4)}})); // both read the same
  require_refusal(
      rig.check(group{{sum(at(32), at(32), 4), sum(at(16), at(0), 4), send{at(8), 4, dtype::f32, rank{1}}}}),
      errc::invalid_argument, {"part 1 (the recv range of its all_reduce)", "part 2 (the send range of its send)"});
  require_refusal(rig.check(group{{barrier{}, sum(at(32), at(32), 4), sum(at(32), at(0), 4)}}), errc::invalid_argument,
                  {"part 1 (the recv range of its all_reduce)", "part 2 (the send range of its all_reduce)"});
  require_refusal(rig.check(group{{sum(at(0), at(16), 4), sum(memory, memory, 17), sum(at(0), at(16), 4)}}),
                  errc::invalid_argument, {"part 1 of the group", "send buffer is too short", "17"});
}

TEST_CASE("groups of ranks are compared part by part", "[collectives][ORD-2][GRP-1]") {
  const validation_rig rig;
  const buffer memory = rig.mine.make(64);
  const auto agree = [](std::vector<operation> parts) { return check_agreement(parts); };
  const std::size_t place = GENERATE(0U, 1U, 2U);
  const int other = GENERATE(1, 2);
  CAPTURE(place, other);
  const auto with = [&](operation odd) {
    std::vector<operation> ranks(3, group{std::vector<operation>(3, sum(memory, memory, 4))});
    std::get<group>(ranks[static_cast<std::size_t>(other)]).parts[place] = std::move(odd);
    return agree(std::move(ranks));
  };
  const auto named = "rank " + std::to_string(other) + " for ";
  CHECK_FALSE(with(sum(buffer{}, memory.slice(16, 16), 4))); // memory is each rank's own
  CHECK_FALSE(with(all_reduce{.send = memory, .recv = memory, .count = 4, .staged = true})); // not split in a group
  require_refusal(with(sum(memory, memory, 5)), errc::mismatch, {"of 4 f32", named + "all_reduce of 5"});
  require_refusal(with(sum(memory, memory, 4, dtype::i32)), errc::mismatch, {"f32", named, "i32"});
  require_refusal(with(all_reduce{memory, memory, 4, dtype::f32, reduction::max}), errc::mismatch,
                  {"sum", named, "max"});
  require_refusal(with(all_gather{memory, memory, 4}), errc::mismatch, {named + "all_gather of 4"});
  require_refusal(with(barrier{}), errc::mismatch, {named + "barrier"});
  require_refusal(with(send{memory, 4, dtype::f32, rank{0}}), errc::mismatch, {"rank 0 asks for", named});
  require_refusal(with(copy{memory, memory}), errc::mismatch, {named + "nothing"});
}

TEST_CASE("groups of unequal length, and transfers and v-forms in groups, are compared",
          "[collectives][ORD-2][GRP-1]") {
  const validation_rig rig;
  const buffer memory = rig.mine.make(64);
  const auto agree = [](std::vector<operation> parts) { return check_agreement(parts); };
  const all_reduce same = sum(memory, memory, 4);
  const auto roots = [](int root) { return broadcast{{}, {}, 4, dtype::f32, rank{root}}; };
  CHECK_FALSE(agree({group{}, group{}}));
  CHECK_FALSE(agree({group{{same}}, same})); // the same collectives in the same order
  CHECK_FALSE(agree({group{{same, copy{memory, memory}}}, group{{same}}}));
  require_refusal(agree({group{{same, same}}, group{{same}}}), errc::mismatch, {"rank 1 for nothing"});
  require_refusal(agree({group{{same}}, group{{same, same}}}), errc::mismatch, {"rank 0 asks for nothing"});
  require_refusal(agree({group{{same}}, barrier{}}), errc::mismatch, {"rank 1 for barrier"});
  require_refusal(agree({group{{roots(0)}}, group{{roots(1)}}}), errc::mismatch, {"root 0", "root 1"});
  require_refusal(agree({group{{send{memory, 4, dtype::f32, rank{0}}}}}), errc::mismatch, {"has no recv"});
  require_refusal(agree({group{{same, send{memory, 4, dtype::f32, rank{1}}}}, group{{same}}}), errc::mismatch,
                  {"rank 0 to rank 1", "has no recv"});
  const auto scattered = [&](std::vector<std::size_t> counts) {
    return group{{reduce_scatter_v{memory, memory, partition::packed(std::move(counts))}}};
  };
  CHECK_FALSE(agree({scattered({1, 2}), scattered({1, 2})}));
  require_refusal(agree({scattered({1, 2}), scattered({2, 1})}), errc::mismatch, {"parts of 1 2", "parts of 2 1"});
}

TEST_CASE("the root of an agree is checked where it is used", "[collectives][agree][ORD-2]") {
  const validation_rig rig;
  CHECK_FALSE(rig.check(troupe::agree{agreement_rule::min, contribution{1}.bytes, rank{99}}));
  require_refusal(rig.check(troupe::agree{agreement_rule::of_rank, {}, rank{99}}), errc::invalid_argument,
                  {"root 99 is not in this world"});
}

TEST_CASE("in place, no other part of send may lie where the result is written", "[collectives][ORD-2]") {
  const validation_rig rig;
  const buffer memory = rig.mine.make(64);
  const auto scattered = [&](std::vector<std::size_t> displacements, bool in_place) {
    return rig.check(reduce_scatter_v{.send = memory.slice(0, 32),
                                      .recv = in_place ? memory.slice(0, 16) : memory.slice(32, 16),
                                      .send_parts = {{4, 4}, std::move(displacements)}});
  };
  CHECK_FALSE(scattered({0, 4}, true));
  CHECK_FALSE(scattered({0, 2}, false)); // what is only read may overlap
  require_refusal(scattered({0, 2}, true), errc::invalid_argument, {"two parts of the send buffer", "in place"});
  require_refusal(scattered({0, 0}, true), errc::invalid_argument, {"two parts of the send buffer", "in place"});
}

TEST_CASE("half a transfer to oneself is refused unless the other half is launched with it", "[collectives][ORD-2]") {
  validation_rig rig;
  const buffer from = rig.mine.make(16), to = rig.mine.make(16);
  const auto to_self = [&](int tag, std::size_t count = 4) { return send{from, count, dtype::f32, rank{0}, tag}; };
  const auto from_self = [&](int tag, std::size_t count = 4) { return recv{to, count, dtype::f32, rank{0}, tag}; };
  const auto alone = [](const operation& what) { return check_transfers_to_self({&what, 1}, rank{0}); };
  require_refusal(alone(to_self(3)), errc::invalid_argument, {"send", "tag 3", "rank 0", "itself", "one group"});
  require_refusal(alone(from_self(0)), errc::invalid_argument, {"recv", "no send"});
  CHECK_FALSE(alone(send{from, 4, dtype::f32, rank{1}, 0}));
  CHECK_FALSE(alone(sum(from, to, 4)));

  CHECK_FALSE(rig.check(group{{from_self(1), to_self(1), send{from, 4, dtype::f32, rank{1}, 7}}}));
  require_refusal(rig.check(group{{to_self(1), send{from, 4, dtype::f32, rank{1}, 1}}}), errc::invalid_argument,
                  {"send with tag 1"});
  require_refusal(rig.check(group{{to_self(1), from_self(2)}}), errc::invalid_argument, {"send with tag 1"});
  require_refusal(rig.check(group{{to_self(1), to_self(1), from_self(1)}}), errc::invalid_argument, {"no recv"});
  require_refusal(rig.check(group{{to_self(1), from_self(1, 3)}}), errc::mismatch, {"4 f32", "3 f32", "tag 1"});
}

} // namespace troupe::tests::validation_test
