// Composed operations on the mock: as right as those of all ranks' own communicator, and as easily ended.
#include "hierarchical_world.hpp"
#include "support/gate.hpp"
#include "support/outcomes.hpp"
#include "support/sample_operations.hpp"

#include <troupe/device/memory/leak_report.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cmath>
#include <cstring>

using namespace troupe;
using namespace troupe::tests;

namespace {

const std::vector<int>& tried_nodes(std::size_t which) {
  static const std::vector<std::vector<int>> all{{0, 0, 1, 1},    {0, 0, 1, 1, 1}, {0, 1, 1, 1, 1}, {0, 1, 0, 1},
                                                 {0, 1, 1, 0, 1}, {0, 0, 0},       {0, 1}};
  return all.at(which);
}

/// Values whose combinations are exact in every dtype used here.
void put_value(dtype type, std::byte* to, std::size_t index, int value) {
  const auto store = [&](auto element) { std::memcpy(to + index * sizeof element, &element, sizeof element); };
  switch (type) {
    case dtype::f32: return store(static_cast<float>(value));
    case dtype::f64: return store(static_cast<double>(value));
    default: return store(static_cast<std::int32_t>(value));
  }
}

/// What all ranks' memory is after \p what, byte by byte: sends, then receives.
std::vector<std::byte> memory_after(hierarchical_world& world, const sample_operation& what, std::size_t count,
                                    dtype type, bool together) {
  const int size = static_cast<int>(world.members.size());
  std::vector<buffer> kept;
  std::vector<operation> asked;
  for (int r = 0; r < size; ++r) {
    const sample_place at{.self = r, .world_size = size, .count = count, .type = type};
    const std::size_t room = sample_room(at);
    auto& pool = *world.members[static_cast<std::size_t>(r)].pool;
    for (int i = 0; i < 2; ++i) {
      kept.push_back(pool.allocate(room * size_bytes(type)));
      for (std::size_t k = 0; k < room; ++k)
        put_value(type, kept.back().data(), k,
                  i == 1 ? -1 : static_cast<int>((k * 7 + static_cast<std::size_t>(r) * 5) % 11));
    }
    asked.push_back(what.make(kept[kept.size() - 2], kept.back(), at));
  }
  for (std::size_t r = 0; r < asked.size(); ++r) {
    const operation* const one = &asked[r];
    if (together)
      world.members[r].comm->launch_together({&one, 1}, world.members[r].line);
    else
      world.members[r].comm->launch(asked[r], world.members[r].line);
  }
  world.synchronize();
  std::vector<std::byte> all;
  for (const buffer& one : kept) all.insert(all.end(), one.data(), one.data() + one.size_bytes());
  return all;
}

buffer word_of(hierarchical_world::member& at, std::int32_t value) {
  buffer made = at.pool->allocate(sizeof value);
  std::memcpy(made.data(), &value, sizeof value);
  return made;
}

std::int32_t read_word(const buffer& from) {
  std::int32_t value = 0;
  std::memcpy(&value, from.data(), sizeof value);
  return value;
}

operation sum_of_words(const buffer& send, const buffer& recv) {
  return all_reduce{.send = send, .recv = recv, .count = 1, .type = dtype::i32};
}

} // namespace

TEST_CASE("every operation leaves the memory of all ranks as it does without a hierarchy", "[collectives][hierarchy]") {
  const std::size_t which = GENERATE(0U, 1U, 2U, 3U, 4U, 5U, 6U);
  const std::size_t scratch_bytes = GENERATE(std::size_t{600}, std::size_t{1} << 20U);
  const bool apart = scratch_bytes > 600 && GENERATE(false, true);
  const auto& nodes = tried_nodes(which);
  hierarchical_world composed{nodes, {.mode = hierarchy_mode::always, .scratch_bytes = scratch_bytes}, apart};
  hierarchical_world flat{nodes, {.mode = hierarchy_mode::never}};
  for (const sample_operation& what : sample_operations())
    for (const std::size_t count : {0U, 1U, 6U, 101U})
      for (const dtype type : {dtype::i32, dtype::f64})
        for (const bool together : {false, true}) {
          CAPTURE(which, scratch_bytes, what.name, count, type, together);
          CHECK(memory_after(composed, what, count, type, together) == memory_after(flat, what, count, type, together));
        }
}

TEST_CASE("composed means are those of all ranks' elements, each divided before the sum", "[collectives][hierarchy]") {
  const std::size_t which = GENERATE(0U, 1U, 2U, 4U);
  hierarchical_world world{tried_nodes(which)};
  const std::size_t n = world.members.size();
  std::vector<buffer> values;
  for (std::size_t r = 0; r < n; ++r) {
    values.push_back(world.members[r].pool->allocate(5 * sizeof(float)));
    for (std::size_t k = 0; k < 5; ++k) put_value(dtype::f32, values[r].data(), k, static_cast<int>(r * 10 + k));
    world.members[r].comm->launch(
        all_reduce{.send = values[r], .recv = values[r], .count = 5, .type = dtype::f32, .op = reduction::avg},
        world.members[r].line);
  }
  world.synchronize();
  for (const buffer& one : values)
    for (std::size_t k = 0; k < 5; ++k) {
      float seen = 0;
      std::memcpy(&seen, one.data() + k * sizeof seen, sizeof seen);
      const float wanted = 5.0F * static_cast<float>(n - 1) + static_cast<float>(k);
      CHECK(std::abs(seen - wanted) < 1e-5F * wanted + 1e-6F);
    }
}

TEST_CASE("factors of a composed sum are each rank's own, by value or in memory, on lone ranks too",
          "[collectives][hierarchy]") {
  const std::size_t which = GENERATE(0U, 1U, 2U, 4U);
  const bool in_memory = GENERATE(false, true);
  hierarchical_world world{tried_nodes(which)};
  std::vector<buffer> values, factors;
  std::int32_t wanted = 0;
  for (std::size_t r = 0; r < world.members.size(); ++r) {
    auto& at = world.members[r];
    const auto number = static_cast<std::int32_t>(r);
    values.push_back(word_of(at, 3 + number));
    wanted += (3 + number) * (number - 2);
    factors.push_back(word_of(at, number - 2));
    const factor by = in_memory ? factor::on_device(factors.back()) : factor::of(number - 2);
    at.comm->launch(all_reduce{.send = values[r],
                               .recv = values[r],
                               .count = 1,
                               .type = dtype::i32,
                               .op = reduction::pre_mul_sum,
                               .factor = by},
                    at.line);
  }
  world.synchronize();
  for (const buffer& one : values) CHECK(read_word(one) == wanted);
}

TEST_CASE("a composed operation touches the communicators of a node and of the nodes alone",
          "[collectives][hierarchy]") {
  hierarchical_world world{{0, 0, 0, 1, 1, 1}};
  for (auto& one : world.members) one.comm->launch(barrier{}, one.line);
  world.synchronize();
  CHECK(world.launches->of(3) == std::vector<std::size_t>{1, 1}); // of each node
  CHECK(world.launches->of(2) == std::vector<std::size_t>{1, 1, 1});
  CHECK(world.launches->of(6).empty());
}

TEST_CASE("traffic between nodes goes through the backend that was given for it", "[collectives][hierarchy]") {
  hierarchical_world world{{0, 0, 0, 1, 1, 1}, {.mode = hierarchy_mode::always}, true};
  for (auto& one : world.members) one.comm->launch(barrier{}, one.line);
  world.synchronize();
  CHECK(world.launches->of(3) == std::vector<std::size_t>{1, 1});
  CHECK(world.launches->of(2).empty());
  CHECK(world.launches_apart->of(2) == std::vector<std::size_t>{1, 1, 1});
  CHECK(world.launches->of(6) == std::vector<std::size_t>{1}); // the names of what crosses
}

TEST_CASE("a world refuses operations that the backend between nodes cannot do", "[collectives][hierarchy]") {
  const std::vector<int> nodes{0, 0, 1, 1};
  const auto all = make_mock_backend();
  const auto kind = make_hierarchical_backend(all, node_map{nodes}, {}, make_mock_backend({feature::fp8_reductions}));
  CHECK(all->examine({}).exclusions.empty());
  CHECK_FALSE(kind->examine({}).exclusions.empty());
}

TEST_CASE("sums that are launched together go through each phase together", "[collectives][hierarchy]") {
  hierarchical_world world{{0, 0, 0, 1, 1, 1}};
  std::vector<buffer> values;
  std::vector<operation> asked;
  for (auto& one : world.members)
    for (int i = 0; i < 2; ++i) {
      values.push_back(one.pool->allocate(6 * sizeof(std::int32_t)));
      for (std::size_t k = 0; k < 6; ++k) put_value(dtype::i32, values.back().data(), k, i + 1);
      asked.emplace_back(all_reduce{.send = values.back(), .recv = values.back(), .count = 6, .type = dtype::i32});
    }
  for (std::size_t r = 0; r < world.members.size(); ++r) {
    const std::vector<const operation*> both{&asked[2 * r], &asked[2 * r + 1]};
    world.members[r].comm->launch_together(both, world.members[r].line);
  }
  world.synchronize();
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(read_word(values[i]) == (i % 2 == 0 ? 6 : 12));
  CHECK(world.launches->of(3) == std::vector<std::size_t>{2, 2, 2, 2});
  CHECK(world.launches->of(2) == std::vector<std::size_t>{2, 2, 2});
}

TEST_CASE("ranks compose the collectives of a group alike, whether or not they send in it too (ORD-1)",
          "[collectives][hierarchy]") {
  hierarchical_world world{{0, 0, 1, 1, 1}};
  std::vector<buffer> sums, sent;
  for (auto& one : world.members) {
    sums.push_back(word_of(one, one.comm->self().value()));
    sent.push_back(word_of(one, 100 + one.comm->self().value()));
  }
  for (std::size_t r = 0; r < world.members.size(); ++r) {
    group all{{sum_of_words(sums[r], sums[r])}};
    if (r == 0)
      all.parts.emplace_back(troupe::send{.memory = sent[r], .count = 1, .type = dtype::i32, .peer = rank{3}});
    if (r == 3)
      all.parts.emplace_back(troupe::recv{.memory = sent[r], .count = 1, .type = dtype::i32, .peer = rank{0}});
    world.members[r].comm->launch(all, world.members[r].line);
  }
  world.synchronize();
  for (const buffer& one : sums) CHECK(read_word(one) == 10);
  CHECK(read_word(sent[3]) == 100);
}

TEST_CASE("worlds of another size than the map's, and of one node, are the inner backend's own",
          "[collectives][hierarchy]") {
  const auto launches = std::make_shared<counted_launches>();
  const std::vector<int> two_nodes{0, 0, 1, 1}, one_node{0, 0, 0, 0};
  const auto gpu = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  const auto is_inner = [&](const std::vector<int>& nodes, int size) {
    const auto kind = make_hierarchical_backend(std::make_shared<counting_backend>(launches), node_map{nodes});
    const auto made = kind->create(kind->make_unique_id(), rank{0}, size, gpu);
    return dynamic_cast<counting_communicator*>(made.get()) != nullptr;
  };
  CHECK_FALSE(is_inner(two_nodes, 4));
  CHECK(is_inner(two_nodes, 3));
  CHECK(is_inner(one_node, 4));
}

TEST_CASE("abort ends an init that is stuck in any of its phases", "[collectives][hierarchy]") {
  const std::size_t which = GENERATE(0U, 1U, 2U); // 2 and 2, 2 and 3, 1 and 4
  const int phases_done = GENERATE(0, 1, 2, 3);   // by the last rank, which then goes no further
  const bool apart = phases_done == 3 || GENERATE(false, true);
  const auto& nodes = tried_nodes(which);
  const int size = static_cast<int>(nodes.size()), last = size - 1;
  const std::size_t leaks_before = leak_count();
  {
    const auto api = make_mock_driver({.device_count = size});
    const auto inner = make_mock_backend();
    const auto kind = make_hierarchical_backend(inner, node_map{nodes}, {.mode = hierarchy_mode::always},
                                                apart ? make_mock_backend() : nullptr);
    const unique_id id = kind->make_unique_id();
    std::vector<std::shared_ptr<communicator>> ranks;
    for (int r = 0; r < last; ++r) ranks.push_back(kind->create(id, rank{r}, size, device::open(api, device_id{r})));
    const auto missing = inner->create(id, rank{last}, size, device::open(api, device_id{last}));
    std::vector<errc> ends(ranks.size(), errc::none);
    std::shared_ptr<communicator> its_inside;
    {
      std::vector<std::jthread> helpers;
      for (std::size_t r = 0; r < ranks.size(); ++r)
        helpers.emplace_back([&, r] { ends[r] = code_of([&] { ranks[r]->init(); }); });
      if (phases_done > 0) missing->init(); // returns when all have come
      if (phases_done > 1) {
        const node_map map{nodes};
        const auto me = static_cast<std::size_t>(last);
        its_inside = missing->split({.color = static_cast<int>(map.node_of(me)),
                                     .self = rank{static_cast<int>(map.index_of(me))},
                                     .world_size = static_cast<int>(map.members(map.node_of(me)).size())});
        its_inside->init();
      }
      if (phases_done > 2) { // the names of what crosses
        const auto memory = memory_pool::create(missing->where())->allocate(nodes.size() * sizeof(unique_id));
        const std::size_t mine = static_cast<std::size_t>(last) * sizeof(unique_id);
        const stream line{missing->where()};
        missing->launch(all_gather{.send = memory.slice(mine, sizeof(unique_id)),
                                   .recv = memory,
                                   .count = sizeof(unique_id),
                                   .type = dtype::u8},
                        line);
        line.ref().synchronize();
      }
      for (const auto& one : ranks) one->abort(); // before, while or after it waits: the same
    }
    // What crosses forms by itself, and only those who would meet the last rank there are stuck.
    for (std::size_t r = 0; r < ends.size(); ++r)
      if (phases_done < 3 || (which == 0 && r == 1)) CHECK(ends[r] == errc::communicator_failed);
    for (const auto& one : ranks) one->destroy();
    if (its_inside) its_inside->abort();
    missing->abort();
  }
  CHECK(leak_count() == leaks_before);
}

TEST_CASE("abort ends a composed operation whose peers never come, and nothing is launched afterwards",
          "[collectives][hierarchy]") {
  const std::size_t which = GENERATE(0U, 1U, 2U, 4U);
  hierarchical_world world{tried_nodes(which)};
  std::vector<buffer> words;
  for (std::size_t r = 0; r + 1 < world.members.size(); ++r) {
    auto& at = world.members[r];
    words.push_back(word_of(at, 1));
    at.comm->launch(sum_of_words(words[r], words[r]), at.line);
  }
  world.on_all([](hierarchical_world::member& one) { one.comm->abort(); });
  world.synchronize();
  for (auto& one : world.members) {
    CHECK(code_of([&] { one.comm->launch(barrier{}, one.line); }) == errc::communicator_failed);
    one.comm->abort();
  }
}

TEST_CASE("check reports the part of a composed operation on which ranks disagree (ORD-2)",
          "[collectives][hierarchy]") {
  hierarchical_world world{{0, 0, 1, 1}};
  std::vector<buffer> values;
  for (std::size_t r = 0; r < world.members.size(); ++r) {
    auto& at = world.members[r];
    values.push_back(at.pool->allocate(64));
    all_reduce one{.send = values[r], .recv = values[r], .count = 8, .type = dtype::i32};
    if (r == 3) one.op = reduction::max;
    at.comm->launch(one, at.line);
  }
  std::size_t told = 0;
  while (told == 0)
    for (auto& one : world.members) told += code_of([&] { one.comm->check(); }) == errc::mismatch ? 1 : 0;
  CHECK(told > 0);
  world.on_all([](hierarchical_world::member& one) { one.comm->abort(); });
  world.synchronize();
}

namespace {

/// Forms what each of \p stay makes of its communicator, and has it sum one word of each and an array that is composed.
void check_next(hierarchical_world& failed, const std::vector<std::size_t>& stay,
                const std::function<std::shared_ptr<communicator>(communicator&, rank)>& make) {
  std::vector<std::shared_ptr<communicator>> next;
  for (std::size_t i = 0; i < stay.size(); ++i)
    next.push_back(make(*failed.members[stay[i]].comm, rank{static_cast<int>(i)}));
  {
    std::vector<std::jthread> helpers;
    for (const auto& one : next) helpers.emplace_back([&one] { one->init(); });
  }
  std::vector<buffer> words;
  std::vector<std::unique_ptr<stream>> lines;
  std::int32_t wanted = 0;
  for (std::size_t i = 0; i < stay.size(); ++i) {
    auto& at = failed.members[stay[i]];
    words.push_back(word_of(at, static_cast<std::int32_t>(i) + 1));
    wanted += static_cast<std::int32_t>(i) + 1;
    lines.push_back(std::make_unique<stream>(at.gpu));
    next[i]->launch(sum_of_words(words[i], words[i]), *lines[i]);
  }
  for (const auto& line : lines) line->ref().synchronize();
  for (const buffer& one : words) CHECK(read_word(one) == wanted);
  for (const auto& one : next) one->destroy();
}

/// Returns its memory.
[[nodiscard]] buffer leave_hanging(hierarchical_world& world) {
  auto& at = world.members[0];
  buffer word = word_of(at, 1);
  at.comm->launch(sum_of_words(word, word), at.line); // the others never come
  return word;
}

} // namespace

TEST_CASE("survivors of a composed world shrink it while it hangs, and compose again (FLT-1)",
          "[collectives][hierarchy]") {
  const int lost = GENERATE(1, 4);
  hierarchical_world world{{0, 0, 1, 1, 1}};
  const buffer hung = leave_hanging(world);
  std::vector<std::size_t> stay;
  for (std::size_t r = 0; r < 5; ++r)
    if (static_cast<int>(r) != lost) stay.push_back(r);
  const std::size_t flat_before = world.launches->of(4).size();
  check_next(world, stay, [&](communicator& failed, rank self) { return failed.shrink({{rank{lost}}, self, 4}); });
  CHECK(world.launches->of(4).size() == flat_before); // not by all ranks' own
  world.members[0].line.ref().synchronize();          // what hung has ended
  for (auto& one : world.members) one.comm->abort();
}

TEST_CASE("a composed world that shrinks to one node composes no more", "[collectives][hierarchy]") {
  hierarchical_world world{{0, 0, 1}};
  const buffer hung = leave_hanging(world);
  check_next(world, {0, 1}, [&](communicator& failed, rank self) { return failed.shrink({{rank{2}}, self, 2}); });
  world.members[0].line.ref().synchronize();
  for (auto& one : world.members) one.comm->abort();
}

TEST_CASE("a composed world is revoked and split with all its ranks (FLT-1)", "[collectives][hierarchy]") {
  hierarchical_world world{{0, 0, 1, 1, 1}};
  const buffer hung = leave_hanging(world);
  check_next(world, {0, 1, 2, 3, 4}, [](communicator& failed, rank) { return failed.revoke_and_split(); });
  world.members[0].line.ref().synchronize();
  for (auto& one : world.members) one.comm->abort();
}

TEST_CASE("a composed world is split as any other", "[collectives][hierarchy]") {
  hierarchical_world world{{0, 0, 1, 1}};
  std::vector<std::shared_ptr<communicator>> pairs(4);
  world.on_all([&](hierarchical_world::member& one) {
    const int r = one.comm->self().value();
    auto& mine = pairs[static_cast<std::size_t>(r)];
    mine = one.comm->split({.color = r % 2, .self = rank{r / 2}, .world_size = 2});
    mine->init();
  });
  std::vector<buffer> words;
  for (std::size_t r = 0; r < 4; ++r) {
    words.push_back(word_of(world.members[r], static_cast<std::int32_t>(r)));
    pairs[r]->launch(sum_of_words(words[r], words[r]), world.members[r].line);
  }
  world.synchronize();
  for (std::size_t r = 0; r < 4; ++r) CHECK(read_word(words[r]) == (r % 2 == 0 ? 2 : 4));
  for (const auto& one : pairs) one->destroy();
}
