// Small collectives as kernels of troupe's own, on the mock: which operations they are, that results are those of the
// library to the last bit, and that kernels that wait for a peer end when the communicator has failed.
#include "support/outcomes.hpp"

#include <troupe/collectives/backend/host_reduce.hpp>
#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_backend.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_kernels.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_local_meeting.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_plan.hpp>
#include <troupe/device/graph.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace troupe::tests::one_shot_backend_test {

namespace {

constexpr std::size_t limit = 4096;

all_reduce sum_of(std::size_t count, dtype type = dtype::f32) {
  return {.send = {}, .recv = {}, .count = count, .type = type};
}

/// Counts the launches that are passed on to the library.
class counting_backend final : public backend {
public:
  [[nodiscard]] std::string_view name() const noexcept override { return real_->name(); }
  [[nodiscard]] std::string version() const override { return real_->version(); }
  [[nodiscard]] troupe::capabilities examine(std::span<const std::shared_ptr<device>> devices) override {
    return real_->examine(devices);
  }
  [[nodiscard]] unique_id make_unique_id() override { return real_->make_unique_id(); }
  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                     std::shared_ptr<device> where) override {
    return std::make_shared<counted>(real_->create(id, self, world_size, std::move(where)), launches);
  }

  std::shared_ptr<std::atomic<int>> launches = std::make_shared<std::atomic<int>>(0);

private:
  class counted final : public communicator {
  public:
    counted(std::shared_ptr<communicator> real, std::shared_ptr<std::atomic<int>> count)
      : communicator{real->self(), real->world_size(), real->where()},
        real_{std::move(real)},
        count_{std::move(count)} {}
    void init() override { real_->init(); }
    void check() override { real_->check(); }
    void abort() override { real_->abort(); }
    void destroy() override { real_->destroy(); }
    [[nodiscard]] std::shared_ptr<communicator> split(const split_spec& as) override {
      return std::make_shared<counted>(real_->split(as), count_);
    }
    void split_none() override { real_->split_none(); }

  private:
    bool do_launch(const operation& what, stream_ref stream, completion_word at_end) override {
      ++*count_;
      return real_->launch(what, stream, at_end);
    }
    bool do_launch_together(std::span<const operation* const> all, stream_ref stream, completion_word word) override {
      ++*count_;
      return real_->launch_together(all, stream, word);
    }
    std::shared_ptr<communicator> real_;
    std::shared_ptr<std::atomic<int>> count_;
  };

  std::shared_ptr<backend> real_ = make_mock_backend();
};

/// A formed communicator, each rank on a device, a stream and a pool of its own.
struct small_world {
  struct member {
    std::shared_ptr<device> gpu;
    std::shared_ptr<communicator> comm;
    stream line;
    std::shared_ptr<memory_pool> pool;
  };

  explicit small_world(int size, const one_shot_settings& settings = {.part_bytes = limit}) {
    const auto api = make_mock_driver({.device_count = size});
    const auto kind = with_one_shot_kernels(library, settings);
    const unique_id id = kind->make_unique_id();
    for (int i = 0; i < size; ++i) {
      auto gpu = device::open(api, device_id{i});
      members.push_back({gpu, kind->create(id, rank{i}, size, gpu), stream{gpu}, memory_pool::create(gpu)});
    }
    form(members);
    *library->launches = 0; // of the warm-up
  }
  small_world(const small_world&) = delete;
  small_world& operator=(const small_world&) = delete;
  ~small_world() { close(members); }

  static void form(std::vector<member>& all) {
    std::vector<std::jthread> helpers;
    for (member& one : all)
      helpers.emplace_back([&one] {
        one.comm->init();
        one.comm->warm_up(one.line);
      });
  }
  static void close(std::vector<member>& all) {
    for (member& one : all) {
      one.line.ref().synchronize();
      one.comm->drained();
      one.comm->destroy();
    }
  }

  void synchronize() {
    for (member& one : members) one.line.ref().synchronize();
  }

  /// Launches what \p make returns for each rank, and waits for all.
  template <class Make>
  void run(const Make& make) {
    for (member& one : members) one.comm->launch(make(one), one.line);
    synchronize();
  }

  std::shared_ptr<counting_backend> library = std::make_shared<counting_backend>();
  std::vector<member> members;
};

/// Bytes that differ for each rank and place; floats among them are finite.
std::byte pattern(int of_rank, std::size_t at) {
  return static_cast<std::byte>((at * 37 + static_cast<std::size_t>(of_rank) * 91 + 5) % 59);
}

enum class shape : std::uint8_t { reduce_all, reduce_one, scattered, gathered, to_one, from_one, spread, exchanged };

/// The operation of one rank on memory that begins \p skew elements behind an aligned address.
operation make(shape what, std::size_t count, dtype type, reduction op, rank root, const buffer& send,
               const buffer& recv) {
  const factor by = [&] {
    factor made;
    store_element(made.value.data(), type, 3);
    return made;
  }();
  switch (what) {
    case shape::reduce_all:
      return all_reduce{.send = send, .recv = recv, .count = count, .type = type, .op = op, .factor = by};
    case shape::reduce_one:
      return reduce{.send = send, .recv = recv, .count = count, .type = type, .op = op, .root = root, .factor = by};
    case shape::scattered:
      return reduce_scatter{.send = send, .recv = recv, .count = count, .type = type, .op = op, .factor = by};
    case shape::gathered: return all_gather{.send = send, .recv = recv, .count = count, .type = type};
    case shape::to_one: return gather{.send = send, .recv = recv, .count = count, .type = type, .root = root};
    case shape::from_one: return broadcast{.send = send, .recv = recv, .count = count, .type = type, .root = root};
    case shape::spread: return scatter{.send = send, .recv = recv, .count = count, .type = type, .root = root};
    case shape::exchanged: return all_to_all{.send = send, .recv = recv, .count = count, .type = type};
  }
  return barrier{};
}

/// Runs one operation in \p world and returns what the ranks' receive buffers hold afterwards.
std::vector<std::vector<std::byte>> results(small_world& world, shape what, std::size_t count, dtype type, reduction op,
                                            rank root, std::size_t skew) {
  const std::size_t parts = world.members.size();
  const std::size_t bytes = std::max<std::size_t>(1, parts * count * size_bytes(type));
  const std::size_t before = skew * size_bytes(type);
  std::vector<buffer> sends;
  std::vector<buffer> recvs;
  for (std::size_t r = 0; r < parts; ++r) {
    sends.push_back(world.members[r].pool->allocate(bytes + before));
    recvs.push_back(world.members[r].pool->allocate(bytes + before));
    for (std::size_t i = 0; i < bytes + before; ++i) sends[r].data()[i] = pattern(static_cast<int>(r), i);
    std::fill_n(recvs[r].data(), bytes + before, std::byte{0xA5});
    world.members[r].comm->launch(
        make(what, count, type, op, root, sends[r].slice(before, bytes), recvs[r].slice(before, bytes)),
        world.members[r].line);
  }
  world.synchronize();
  std::vector<std::vector<std::byte>> got;
  for (const buffer& one : recvs) got.emplace_back(one.data(), one.data() + bytes + before);
  return got;
}

} // namespace

TEST_CASE("small collectives of equal parts and barriers are one-shot kernels, by their sizes alone (ORD-2)",
          "[collectives][one-shot]") {
  const one_shot_limits limits{.part_bytes = limit};
  CHECK(is_one_shot(sum_of(limit / 4), limits));
  CHECK_FALSE(is_one_shot(sum_of(limit / 4 + 1), limits));
  CHECK(is_one_shot(sum_of(limit, dtype::u8), limits));
  CHECK_FALSE(is_one_shot(sum_of(limit + 1, dtype::u8), limits));
  CHECK(is_one_shot(sum_of(0), limits));
  CHECK(is_one_shot(barrier{}, limits));
  CHECK_FALSE(is_one_shot(all_gather_v{}, limits));
  CHECK_FALSE(is_one_shot(send{}, limits));
  CHECK_FALSE(is_one_shot(copy{}, limits));
  CHECK_FALSE(is_one_shot(sum_of(SIZE_MAX), limits));
  CHECK_FALSE(is_one_shot(barrier{}, {}));
  CHECK_FALSE(is_one_shot(sum_of(0), {}));
}

TEST_CASE("larger all_reduces of three ranks and more are two kernels, if the ranks divide them",
          "[collectives][one-shot]") {
  const one_shot_limits three{.part_bytes = limit, .ranks = 3};
  constexpr std::size_t most = limit / 4;        // elements of a part
  CHECK_FALSE(is_two_shot(sum_of(most), three)); // one kernel
  CHECK_FALSE(is_two_shot(sum_of(most + 1), three));
  CHECK(is_two_shot(sum_of(most + 2), three));
  CHECK(is_two_shot(sum_of(3 * most), three));
  CHECK_FALSE(is_two_shot(sum_of(3 * most + 3), three));
  CHECK_FALSE(is_two_shot(sum_of(SIZE_MAX), three));
  CHECK_FALSE(is_two_shot(sum_of(2 * most), {.part_bytes = limit, .ranks = 2}));
  CHECK_FALSE(is_two_shot(sum_of(3 * most), {.part_bytes = 0, .ranks = 3}));
  CHECK_FALSE(is_two_shot(all_gather{.send = {}, .recv = {}, .count = 3 * most}, three));
  CHECK_FALSE(is_two_shot(barrier{}, three));
}

TEST_CASE("two kernels give the result of one to the last bit, in place and in groups, and complete once",
          "[collectives][one-shot]") {
  const int size = GENERATE(3, 4, 8);
  constexpr std::size_t small = 512;
  small_world two{size, {.part_bytes = small}};
  small_world one{size, {.part_bytes = small * 8}};
  const auto elements = static_cast<std::size_t>(size) * small;
  for (const dtype type : {dtype::u8, dtype::f16, dtype::f32, dtype::f64, dtype::bf16})
    for (const reduction op : all_reductions)
      for (const std::size_t skew : {0U, 1U}) {
        CAPTURE(size, to_string(type), to_string(op), skew);
        const std::size_t count = elements / size_bytes(type);
        REQUIRE(results(two, shape::reduce_all, count, type, op, rank{0}, skew) ==
                results(one, shape::reduce_all, count, type, op, rank{0}, skew));
      }
  const auto grouped = [&](small_world& world) {
    constexpr std::array<std::size_t, 3> parts{1, 8, 3}; // in small sizes: one kernel, then two, then two or one
    std::vector<buffer> all;
    for (auto& member : world.members) {
      std::vector<operation> made;
      for (const std::size_t part : parts) {
        const std::size_t count = std::min(part, static_cast<std::size_t>(size)) * small / 4 / 24 * 24;
        const buffer& memory = all.emplace_back(member.pool->allocate(count * 4));
        for (std::size_t k = 0; k < memory.size_bytes(); ++k)
          memory.data()[k] = pattern(member.comm->self().value(), k);
        made.emplace_back(all_reduce{.send = memory, .recv = memory, .count = count, .type = dtype::i32});
      }
      member.comm->launch(group{std::move(made)}, member.line);
    }
    world.synchronize();
    std::vector<std::vector<std::byte>> got;
    for (const buffer& each : all) got.emplace_back(each.data(), each.data() + each.size_bytes());
    return got;
  };
  CHECK(grouped(two) == grouped(one));
  CHECK(*two.library->launches == 0);
  CHECK(*one.library->launches == 0);
}

TEST_CASE("parts of a group are decided one by one", "[collectives][one-shot]") {
  const operation small = sum_of(1);
  const operation large = sum_of(limit);
  const operation several = group{{large, small, barrier{}}};
  const std::array all{&small, &several, &large};
  const one_shot_split found = split_one_shot(all, {.part_bytes = limit});
  const auto& parts = std::get<group>(several).parts;
  CHECK(found.kernels == std::vector{&small, &parts[1], &parts[2]});
  CHECK(found.library == std::vector{&parts[0], &large});
}

TEST_CASE("several operations that are too large together are all the library's", "[collectives][one-shot]") {
  constexpr std::size_t part = std::size_t{1} << 20U;
  const operation large = sum_of(part, dtype::u8);
  const operation nothing = sum_of(0);
  const operation more = sum_of(1);
  const auto way = [](const std::vector<const operation*>& all, int ranks) {
    const one_shot_split found = split_one_shot(all, {.part_bytes = part, .ranks = ranks});
    return std::array{found.kernels.size(), found.two_shots.size(), found.library.size()};
  };
  using counts = std::array<std::size_t, 3>;
  CHECK(way({&large, &large, &large, &large, &nothing}, 2) == counts{5, 0, 0}); // each rank receives 4 MiB
  CHECK(way({&large, &large, &large, &large, &more}, 2) == counts{0, 0, 5});
  CHECK(way({&large, &nothing}, 3) == counts{2, 0, 0});
  CHECK(way({&large, &large}, 3) == counts{0, 0, 2});
  CHECK(way({&large}, 8) == counts{1, 0, 0}); // alone
  const operation halves = sum_of(part * 3 / 2, dtype::u8);
  CHECK(way({&halves, &nothing}, 3) == counts{1, 1, 0}); // 2 MiB, in two kernels
  CHECK(way({&halves, &halves}, 3) == counts{0, 0, 2});
  const operation several = group{{large, large, large, large, more}};
  CHECK(way({&several, &nothing}, 2) == counts{0, 0, 6});
}

TEST_CASE("operations that are launched together share the warps of as few launches as possible",
          "[collectives][one-shot]") {
  const auto entries = [](std::size_t count, std::size_t bytes) {
    return std::vector<one_shot_entry>(count, entry_of(sum_of(bytes, dtype::u8), rank{0}));
  };
  auto sixty_four = entries(64, 4096);
  const auto one = plan_launches(sixty_four, one_shot_blocks);
  REQUIRE(one.size() == 1);
  CHECK(one.front().shape.blocks == 32);
  CHECK(one.front().shape.warps_per_block == 32);
  CHECK(one.front().shape.lines_per_warp == 32);
  CHECK(one.front().entries[1].first_warp == 16);
  const auto large = plan_alone(entries(1, 1U << 20U).front(), one_shot_blocks);
  CHECK(large.blocks == 32);
  CHECK(large.warps_per_block == 32);
  CHECK(large.lines_per_warp == 128);
  const auto tiny = plan_alone(entries(1, 8).front(), one_shot_blocks);
  CHECK(tiny.blocks == 1);
  CHECK(tiny.warps_per_block == 1);
  auto sixty_five = entries(65, 0);
  const auto many = plan_launches(sixty_five, one_shot_blocks);
  REQUIRE(many.size() == 2);
  CHECK(many.front().entries.size() == 64);
  CHECK(many.back().entries.size() == 1);
  auto three = entries(3, 512 * 1024);
  const auto full = plan_launches(three, one_shot_blocks);
  REQUIRE(full.size() == 2);
  CHECK(full.front().shape.blocks == 32);
  CHECK(full.front().entries.back().first_warp == 512);
  const auto few = plan_launches(sixty_four, 8);
  REQUIRE(few.size() == 1);
  CHECK(few.front().shape.blocks == 8);
  CHECK(few.front().shape.lines_per_warp == 128);
}

TEST_CASE("every line of every operation has a place of its own in the blocks that the communicator has",
          "[collectives][one-shot]") {
  const unsigned most_blocks = GENERATE(1U, 4U, 8U, one_shot_blocks);
  CAPTURE(most_blocks);
  const std::size_t most = std::size_t{most_blocks} * one_shot_threads * one_shot_lines * line_payload_bytes;
  const std::vector<std::size_t> sizes{0, 1, 8, 255, 256, 257, 2048, 2049, most / 3, most / 2, most - 1, most};
  std::vector<one_shot_entry> all;
  for (std::size_t i = 0; i < 3 * sizes.size(); ++i)
    all.push_back(entry_of(sum_of(sizes[i * 7 % sizes.size()], dtype::u8), rank{0}));
  std::size_t seen = 0;
  for (const one_shot_launch& launch : plan_launches(all, most_blocks)) {
    const one_shot_shape& shape = launch.shape;
    CHECK(shape.blocks <= most_blocks);
    CHECK(shape.warps_per_block <= one_shot_threads / one_shot_lanes);
    CHECK(shape.lines_per_warp <= one_shot_lanes * one_shot_lines);
    std::size_t next_warp = 0;
    for (const one_shot_entry& one : launch.entries) {
      REQUIRE(one.part_bytes == all[seen++].part_bytes);
      CHECK(one.first_warp == next_warp);
      next_warp += (line_count_of(one.part_bytes) + shape.lines_per_warp - 1) / shape.lines_per_warp;
    }
    const std::size_t warps = std::size_t{shape.blocks} * shape.warps_per_block;
    CHECK(next_warp <= warps);
    CHECK(next_warp + shape.warps_per_block > warps); // no block without a warp that has something to do
  }
  CHECK(seen == all.size());
}

TEST_CASE("only sums of whole lines in aligned memory have kernels of their own", "[collectives][one-shot]") {
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<std::byte*>(address); };
  const auto form_at = [&](all_reduce what, std::uintptr_t send, std::uintptr_t recv) {
    one_shot_entry made = entry_of(what, rank{0});
    made.send = at(send);
    made.recv = at(recv);
    return form_of(made);
  };
  CHECK(form_at(sum_of(2), 256, 264) == one_shot_form::f32_sum);
  CHECK(form_at(sum_of(4, dtype::f16), 256, 264) == one_shot_form::f16_sum);
  CHECK(form_at(sum_of(4, dtype::bf16), 256, 264) == one_shot_form::bf16_sum);
  CHECK(form_at(sum_of(3), 256, 264) == one_shot_form::any);
  CHECK(form_at(sum_of(0), 256, 264) == one_shot_form::any);
  CHECK(form_at(sum_of(2), 260, 264) == one_shot_form::any);
  CHECK(form_at(sum_of(2), 256, 260) == one_shot_form::any);
  CHECK(form_at(sum_of(2, dtype::i32), 256, 264) == one_shot_form::any);
  CHECK(form_at({.send = {}, .recv = {}, .count = 2, .type = dtype::f32, .op = reduction::max}, 256, 264) ==
        one_shot_form::any);
  const reduce_scatter scattered{.send = {}, .recv = {}, .count = 2, .type = dtype::f32};
  CHECK(form_of(entry_of(scattered, rank{0})) == one_shot_form::any);
  const reduce to_root{.send = {}, .recv = {}, .count = 2, .type = dtype::f32, .root = rank{0}};
  CHECK(form_of(entry_of(to_root, rank{0})) == one_shot_form::any);
  const all_gather gathered{.send = {}, .recv = {}, .count = 2, .type = dtype::f32};
  CHECK(form_of(entry_of(gathered, rank{0})) == one_shot_form::any);
}

TEST_CASE("one-shot kernels give the library's results to the last bit, for every operation, dtype, number of ranks, "
          "size and alignment",
          "[collectives][one-shot]") {
  const int size = GENERATE(2, 3, 4, 5, 8);
  small_world kernels{size};
  small_world library{size, {.enabled = false}};
  const auto compare = [&](shape what, std::size_t count, dtype type, reduction op, std::size_t skew) {
    CAPTURE(size, static_cast<int>(what), count, to_string(type), to_string(op), skew);
    const rank root{static_cast<int>(count) % size};
    REQUIRE(results(kernels, what, count, type, op, root, skew) == results(library, what, count, type, op, root, skew));
  };
  for (const dtype type : all_dtypes)
    for (const reduction op : all_reductions)
      for (const shape what : {shape::reduce_all, shape::reduce_one, shape::scattered})
        for (const std::size_t count : {1U, 7U, 64U}) compare(what, count, type, op, count % 3);
  for (const dtype type : {dtype::u8, dtype::f16, dtype::f32, dtype::f64})
    for (const shape what : {shape::gathered, shape::to_one, shape::from_one, shape::spread, shape::exchanged})
      for (const std::size_t count : {0U, 1U, 9U, 130U, 512U}) compare(what, count, type, reduction::sum, count % 2);
  compare(shape::reduce_all, 0, dtype::f32, reduction::sum, 0);
  compare(shape::reduce_all, limit, dtype::u8, reduction::max, 1);
  CHECK(*kernels.library->launches == 0);
}

TEST_CASE(
    "one-shot kernels of several lines for each thread, and of operations of many sizes, give the library's results",
    "[collectives][one-shot]") {
  constexpr std::size_t most = std::size_t{1} << 20U;
  small_world kernels{2, {.part_bytes = most}};
  small_world library{2, {.enabled = false}};
  for (const std::size_t count : {most / 4 + 1, most / 2 + 13}) // two and four lines
    CHECK(results(kernels, shape::reduce_all, count, dtype::u8, reduction::sum, rank{0}, 1) ==
          results(library, shape::reduce_all, count, dtype::u8, reduction::sum, rank{0}, 1));
  const auto sums = [](small_world& world) {
    constexpr std::array<std::size_t, 6> sizes{1, 300, 70'000, 8, 0, 2049};
    std::vector<buffer> all;
    for (auto& one : world.members) {
      std::vector<operation> parts;
      for (int i = 0; i < 40; ++i) {
        const std::size_t count = sizes[static_cast<std::size_t>(i) % sizes.size()];
        const buffer& memory = all.emplace_back(one.pool->allocate(std::max<std::size_t>(1, count)));
        for (std::size_t k = 0; k < memory.size_bytes(); ++k)
          memory.data()[k] = pattern(one.comm->self().value() + i, k);
        parts.emplace_back(all_reduce{.send = memory, .recv = memory, .count = count, .type = dtype::u8});
      }
      one.comm->launch(group{std::move(parts)}, one.line);
    }
    world.synchronize();
    std::vector<std::vector<std::byte>> got;
    for (const buffer& one : all) got.emplace_back(one.data(), one.data() + one.size_bytes());
    return got;
  };
  CHECK(sums(kernels) == sums(library));
  CHECK(*kernels.library->launches == 0);
}

TEST_CASE("collectives too large for a one-shot kernel go to the library, in the same stream",
          "[collectives][one-shot]") {
  small_world world{2};
  const auto memory_of = [](const small_world::member& one) {
    const buffer memory = one.pool->allocate(2 * limit);
    std::fill_n(reinterpret_cast<float*>(memory.data()), limit / 2, 1.0F);
    return memory;
  };
  std::vector<buffer> all;
  for (auto& one : world.members) all.push_back(memory_of(one));
  const auto doubled = [&](std::size_t count) {
    for (std::size_t r = 0; r < 2; ++r)
      world.members[r].comm->launch(all_reduce{.send = all[r], .recv = all[r], .count = count}, world.members[r].line);
  };
  doubled(limit / 4);
  CHECK(*world.library->launches == 0);
  doubled(limit / 4 + 1);
  CHECK(*world.library->launches == 2);
  doubled(limit / 4);
  world.synchronize();
  const auto* const got = reinterpret_cast<const float*>(all[0].data());
  CHECK(got[0] == 8.0F);
  CHECK(got[limit / 4] == 2.0F);
  CHECK(got[limit / 4 + 1] == 1.0F);
  world.run([&](small_world::member& one) {
    const buffer& memory = all[static_cast<std::size_t>(one.comm->self().value())];
    return group{{all_reduce{.send = memory.slice(0, 4), .recv = memory.slice(0, 4), .count = 1},
                  all_reduce{.send = memory.slice(256, limit + 4),
                             .recv = memory.slice(256, limit + 4),
                             .count = limit / 4 + 1}}};
  });
  CHECK(*world.library->launches == 4);
  CHECK(got[0] == 16.0F);
  CHECK(got[64] == 16.0F);
}

TEST_CASE("a communicator says what it has of one-shot kernels, and counts its launches by their way",
          "[collectives][one-shot]") {
  small_world world{2};
  const auto status = world.members[0].comm->one_shot();
  REQUIRE(status);
  CHECK(status->part_bytes == limit);
  CHECK(status->blocks >= 8);
  CHECK(status->scratch_bytes > 0);
  CHECK(status->why.empty());
  CHECK(*world.members[1].comm->one_shot() == *status);
  CHECK(describe(*status) == "one-shot kernels up to 4096 B, " + std::to_string(status->blocks) + " blocks");
  CHECK(world.members[0].comm->launched() == launch_counts{});
  std::vector<buffer> all;
  world.run([&all](small_world::member& one) {
    const buffer memory = all.emplace_back(one.pool->allocate(2 * limit));
    return group{
        {all_reduce{.send = memory.slice(0, 4), .recv = memory.slice(0, 4), .count = 1},
         all_reduce{.send = memory.slice(256, limit + 4), .recv = memory.slice(256, limit + 4), .count = limit / 4 + 1},
         barrier{}}};
  });
  world.run([](small_world::member&) { return barrier{}; });
  CHECK(world.members[0].comm->launched() == launch_counts{2, 3, 1, 1});

  small_world off{2, {.enabled = false}};
  CHECK(off.members[0].comm->one_shot() == nullptr);
  small_world large{9};
  REQUIRE(large.members[0].comm->one_shot());
  CHECK(describe(*large.members[0].comm->one_shot()) == "no one-shot kernels (they are for at most 8 ranks)");
  large.run([](small_world::member&) { return barrier{}; });
  CHECK(large.members[8].comm->launched() == launch_counts{0, 0, 1, 1});
}

TEST_CASE("sequence numbers wrap", "[collectives][one-shot]") {
  const int size = GENERATE(2, 3);
  small_world kernels{size, {.part_bytes = limit, .first_sequence = 0xFFFFFFFA}};
  small_world library{size, {.enabled = false}};
  for (std::size_t i = 0; i < 16; ++i) {
    const std::size_t count = i % 3 == 0 ? 500 : i;
    CHECK(results(kernels, shape::reduce_all, count, dtype::f32, reduction::sum, rank{0}, 0) ==
          results(library, shape::reduce_all, count, dtype::f32, reduction::sum, rank{0}, 0));
  }
}

TEST_CASE("a captured one-shot kernel runs anew at each replay, between others", "[collectives][one-shot]") {
  small_world world{2};
  std::vector<buffer> memory;
  std::vector<graph> captured;
  for (auto& one : world.members) {
    memory.push_back(one.pool->allocate(4));
    *reinterpret_cast<std::int32_t*>(memory.back().data()) = 1;
    stream_capture into{one.gpu, one.line};
    one.comm->launch(all_reduce{.send = memory.back(), .recv = memory.back(), .count = 1, .type = dtype::i32},
                     one.line);
    captured.push_back(into.end());
  }
  const auto value = [&](std::size_t r) { return *reinterpret_cast<const std::int32_t*>(memory[r].data()); };
  for (int i = 0; i < 3; ++i) {
    for (std::size_t r = 0; r < 2; ++r) captured[r].launch(world.members[r].line);
    world.run([&](small_world::member& one) {
      const buffer& mine = memory[static_cast<std::size_t>(one.comm->self().value())];
      return all_reduce{.send = mine, .recv = mine, .count = 1, .type = dtype::i32};
    });
  }
  CHECK(value(0) == 64);
  CHECK(value(1) == 64);
}

TEST_CASE("a kernel whose peer never comes ends when the communicator has failed, and writes no completion word",
          "[collectives][one-shot]") {
  small_world world{2};
  auto& alone = world.members[0];
  const buffer word = allocate_pinned(alone.gpu, 4);
  auto& seen = word.host_span<std::uint32_t>()[0];
  seen = 0;
  CHECK(alone.comm->launch(barrier{}, alone.line, {.word = &seen, .value = 7}));
  const buffer memory = alone.pool->allocate(64);
  CHECK(alone.comm->launch(all_reduce{.send = memory, .recv = memory, .count = 16}, alone.line,
                           {.word = &seen, .value = 8})); // queued behind it
  CHECK_FALSE(alone.line.ref().idle());
  alone.comm->interrupt();
  alone.line.ref().synchronize();
  CHECK(std::atomic_ref{seen}.load() == 0);
  CHECK(error_of([&] { alone.comm->launch(barrier{}, alone.line); }).code == errc::communicator_failed);
  for (auto& one : world.members) one.comm->abort();
}

TEST_CASE("blocks of two aborted launches do not add up to a complete one", "[collectives][one-shot]") {
  constexpr std::size_t most = std::size_t{64} << 10U;
  small_world world{2, {.part_bytes = most}};
  auto& behind = world.members[0];
  auto& ahead = world.members[1];
  std::size_t two_blocks = 1; // the least size that has them
  while (plan_alone(entry_of(sum_of(two_blocks, dtype::u8), rank{0}), one_shot_blocks).blocks == 1) ++two_blocks;
  std::vector<buffer> all;
  const auto sum = [&](const small_world::member& one, std::size_t count) {
    const buffer& memory = all.emplace_back(one.pool->allocate(count));
    return all_reduce{.send = memory, .recv = memory, .count = count, .type = dtype::u8};
  };
  const buffer word = allocate_pinned(behind.gpu, 4);
  auto& seen = word.host_span<std::uint32_t>()[0];
  seen = 0;
  // The first launch has two blocks here, but the peer comes for one of them only. The second one has that block alone.
  CHECK(ahead.comm->launch(sum(ahead, two_blocks - 1), ahead.line, {}) == false);
  CHECK(behind.comm->launch(sum(behind, two_blocks), behind.line, {.word = &seen, .value = 1}));
  CHECK(behind.comm->launch(barrier{}, behind.line, {.word = &seen, .value = 2}));
  ahead.line.ref().synchronize();
  static_cast<void>(ahead.comm->launch(barrier{}, ahead.line)); // would complete the second launch's block
  behind.comm->interrupt();
  behind.line.ref().synchronize();
  CHECK(std::atomic_ref{seen}.load() == 0);
  for (auto& one : world.members) one.comm->abort();
}

TEST_CASE("the last kernel of a launch writes the completion word", "[collectives][one-shot]") {
  small_world world{2};
  std::vector<buffer> words;
  for (auto& one : world.members) {
    words.push_back(allocate_pinned(one.gpu, 4));
    words.back().host_span<std::uint32_t>()[0] = 0;
    std::vector<operation> parts(70, operation{barrier{}}); // more than one launch
    CHECK(
        one.comm->launch(group{parts}, one.line, {.word = words.back().host_span<std::uint32_t>().data(), .value = 9}));
  }
  world.synchronize();
  for (const buffer& one : words) CHECK(one.host_span<std::uint32_t>()[0] == 9);
  all_gather_v of_the_library{};
  of_the_library.recv_parts = partition::packed({0, 0});
  CHECK_FALSE(world.members[0].comm->launch(of_the_library, world.members[0].line));
  CHECK_FALSE(world.members[1].comm->launch(of_the_library, world.members[1].line));
  world.synchronize();
}

TEST_CASE("the last of several launches writes the completion word, not an earlier one", "[collectives][one-shot]") {
  small_world world{2};
  auto& first = world.members[0];
  const buffer word = allocate_pinned(first.gpu, 4);
  auto& seen = word.host_span<std::uint32_t>()[0];
  seen = 0;
  const std::vector<operation> parts(one_shot_entries + 1, operation{barrier{}}); // two launches
  CHECK(first.comm->launch(group{parts}, first.line, {.word = &seen, .value = 9}));
  const std::vector<operation> of_first_launch(one_shot_entries, operation{barrier{}});
  static_cast<void>(world.members[1].comm->launch(group{of_first_launch}, world.members[1].line));
  world.members[1].line.ref().synchronize(); // this rank's first launch has what it needs, the second has not
  for (int i = 0; i < 2000; ++i) std::this_thread::yield(); // a word of the first launch would be there by then
  CHECK_FALSE(first.line.ref().idle());
  CHECK(std::atomic_ref{seen}.load() == 0);
  static_cast<void>(world.members[1].comm->launch(barrier{}, world.members[1].line));
  world.synchronize();
  CHECK(std::atomic_ref{seen}.load() == 9);
}

TEST_CASE("the second of an all_reduce's two kernels writes the completion word", "[collectives][one-shot]") {
  small_world world{3};
  auto& first = world.members[0];
  const buffer word = allocate_pinned(first.gpu, 4);
  auto& seen = word.host_span<std::uint32_t>()[0];
  seen = 0;
  constexpr std::size_t part = limit / 4;
  std::vector<buffer> all;
  for (auto& one : world.members) all.push_back(one.pool->allocate(3 * limit));
  for (const buffer& one : all) std::fill_n(reinterpret_cast<float*>(one.data()), 3 * part, 1.0F);
  CHECK(first.comm->launch(all_reduce{.send = all[0], .recv = all[0], .count = 3 * part}, first.line,
                           {.word = &seen, .value = 9}));
  const auto others = [&](const auto& make) {
    for (std::size_t r : {1U, 2U})
      world.members[r].comm->launch(make(all[r], all[r].slice(r * limit, limit)), world.members[r].line);
    for (std::size_t r : {1U, 2U}) world.members[r].line.ref().synchronize();
  };
  others(
      [](const buffer& whole, const buffer& own) { return reduce_scatter{.send = whole, .recv = own, .count = part}; });
  for (int i = 0; i < 2000; ++i) std::this_thread::yield(); // a word of the first kernel would be there by then
  CHECK_FALSE(first.line.ref().idle());
  CHECK(std::atomic_ref{seen}.load() == 0);
  others([](const buffer& whole, const buffer& own) { return all_gather{.send = own, .recv = whole, .count = part}; });
  world.synchronize();
  CHECK(std::atomic_ref{seen}.load() == 9);
  for (const buffer& one : all)
    for (const std::size_t at : {std::size_t{0}, part, 3 * part - 1})
      CHECK(reinterpret_cast<const float*>(one.data())[at] == 3.0F);
}

TEST_CASE("ranks that split from a communicator have one-shot kernels of their own", "[collectives][one-shot]") {
  small_world world{4};
  std::vector<small_world::member> halves;
  for (int i = 0; i < 4; ++i) {
    auto& one = world.members[static_cast<std::size_t>(i)];
    halves.push_back(
        {one.gpu, one.comm->split({.color = i % 2, .self = rank{i / 2}, .world_size = 2}), stream{one.gpu}, one.pool});
  }
  small_world::form(halves);
  *world.library->launches = 0;
  std::vector<buffer> memory;
  for (auto& one : halves) {
    memory.push_back(one.pool->allocate(4));
    *reinterpret_cast<std::int32_t*>(memory.back().data()) = static_cast<std::int32_t>(memory.size());
    one.comm->launch(all_reduce{.send = memory.back(), .recv = memory.back(), .count = 1, .type = dtype::i32},
                     one.line);
  }
  for (auto& one : halves) one.line.ref().synchronize();
  const auto value = [&](std::size_t r) { return *reinterpret_cast<const std::int32_t*>(memory[r].data()); };
  CHECK(value(0) == 4);
  CHECK(value(1) == 6);
  CHECK(*world.library->launches == 0);
  small_world::close(halves);
}

TEST_CASE("an abort ends the ranks that wait where a derived communicator forms, and those that come later",
          "[collectives][one-shot]") {
  const auto all = std::make_shared<one_shot_local_meeting>(2);
  const auto half = all->derived({one_shot_meeting::derivation_kind::split, 0, 1}, 2);
  error waited;
  {
    const std::jthread waits{[&] { waited = error_of([&] { static_cast<void>(half->meet(rank{0}, {})); }); }};
    all->abort();
  }
  CHECK(waited.code == errc::communicator_failed);
  const auto later = all->derived({one_shot_meeting::derivation_kind::split, 1, 1}, 2);
  CHECK(error_of([&] { static_cast<void>(later->meet(rank{0}, {})); }).code == errc::communicator_failed);
}

TEST_CASE("an abort of a failed communicator does not end the one that replaces it", "[collectives][one-shot]") {
  const auto failed = std::make_shared<one_shot_local_meeting>(2);
  const auto next = failed->derived({one_shot_meeting::derivation_kind::shrink, 0, 0}, 1);
  failed->abort();
  CHECK(error_of([&] { static_cast<void>(next->meet(rank{0}, {})); }).code == errc::none);
}

TEST_CASE("a world without one-shot kernels is told why, once", "[collectives][one-shot]") {
  std::vector<std::string> told;
  // Without a given size, NVLink must connect the devices, and the mock has none.
  const auto kind =
      with_one_shot_kernels(make_mock_backend(), {.on_absent = [&](const std::string& why) { told.push_back(why); }});
  const auto api = make_mock_driver({.device_count = 2});
  for (int k = 0; k < 2; ++k) {
    std::vector<small_world::member> all;
    const unique_id id = kind->make_unique_id();
    for (int i = 0; i < 2; ++i) {
      auto gpu = device::open(api, device_id{i});
      all.push_back({gpu, kind->create(id, rank{i}, 2, gpu), stream{gpu}, memory_pool::create(gpu)});
    }
    small_world::form(all);
    REQUIRE(all[1].comm->one_shot());
    CHECK(all[1].comm->one_shot()->why.find("NVLink") != std::string::npos);
    for (auto& one : all) one.comm->launch(barrier{}, one.line);
    small_world::close(all);
  }
  REQUIRE(told.size() == 1);
  CHECK(told.front().find("NVLink") != std::string::npos);
}

TEST_CASE("a communicator that has failed leaves its blocks to the one that forms beside it",
          "[collectives][one-shot]") {
  const auto api = make_mock_driver({.device_count = 2});
  const auto kind = with_one_shot_kernels(make_mock_backend(), {.part_bytes = 1U << 20U});
  std::vector<std::vector<small_world::member>> epochs;
  for (int epoch = 0; epoch < 12; ++epoch) {
    const unique_id id = kind->make_unique_id();
    auto& now = epochs.emplace_back();
    for (int i = 0; i < 2; ++i) {
      auto gpu = device::open(api, device_id{i});
      now.push_back({gpu, kind->create(id, rank{i}, 2, gpu), stream{gpu}, memory_pool::create(gpu)});
    }
    small_world::form(now);
    const buffer word = allocate_pinned(now[0].gpu, 4);
    auto& seen = word.host_span<std::uint32_t>()[0];
    REQUIRE(now[0].comm->launch(barrier{}, now[0].line, {.word = &seen, .value = 1})); // a kernel, so there were blocks
    for (auto& one : now) one.comm->interrupt();
    for (auto& one : now) one.line.ref().synchronize();
  }
  for (auto& epoch : epochs)
    for (auto& one : epoch) {
      one.comm->abort();
      one.comm->drained();
    }
}

namespace {

/// Makes a world of two on a mock that is run by hand. Its ranks are formed, without a warm-up.
struct manual_world {
  explicit manual_world(const std::shared_ptr<backend>& library = make_mock_backend()) {
    const auto kind = with_one_shot_kernels(library, {.part_bytes = limit});
    const unique_id id = kind->make_unique_id();
    for (int i = 0; i < 2; ++i) {
      auto gpu = device::open(api, device_id{i});
      members.push_back({gpu, kind->create(id, rank{i}, 2, gpu), stream{gpu}, memory_pool::create(gpu)});
    }
    std::vector<std::jthread> helpers;
    for (auto& one : members) helpers.emplace_back([&one] { one.comm->init(); });
  }

  void sum(small_world::member& one) {
    const buffer& memory = all.emplace_back(one.pool->allocate(4));
    *reinterpret_cast<std::int32_t*>(memory.data()) = 7;
    one.comm->launch(all_reduce{.send = memory, .recv = memory, .count = 1, .type = dtype::i32}, one.line);
  }
  void end() {
    for (auto& one : members) one.comm->interrupt();
    api->run_until_blocked();
    for (auto& one : members) {
      one.comm->abort();
      one.comm->drained();
    }
  }

  std::shared_ptr<mock_driver> api =
      std::make_shared<mock_driver>(mock_options{.device_count = 2, .mode = engine_mode::manual});
  std::vector<small_world::member> members;
  std::vector<buffer> all;
};

/// A library whose communicators form without a look at their devices.
class inert_backend final : public backend {
public:
  [[nodiscard]] std::string_view name() const noexcept override { return "inert"; }
  [[nodiscard]] std::string version() const override { return "none"; }
  [[nodiscard]] troupe::capabilities examine(std::span<const std::shared_ptr<device>>) override { return {}; }
  [[nodiscard]] unique_id make_unique_id() override { return {}; }
  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id&, rank self, int world_size,
                                                     std::shared_ptr<device> where) override {
    return std::make_shared<inert>(self, world_size, std::move(where));
  }

private:
  class inert final : public communicator {
  public:
    using communicator::communicator;
    void init() override {}
    void check() override {}
    void abort() override {}
    void destroy() override {}
  };
};

} // namespace

TEST_CASE("no rank's kernel runs before all scratch has been cleared, and forming waits for no device",
          "[collectives][one-shot]") {
  manual_world world;
  auto& early = world.members[0];
  auto& late = world.members[1];
  early.comm->warm_up(early.line);
  world.sum(early);
  world.api->run_until_blocked(); // what it stores before the other one's warm-up would be lost
  late.comm->warm_up(late.line);
  world.sum(late);
  world.api->run_until_blocked();
  CHECK(early.line.ref().idle());
  CHECK(late.line.ref().idle());
  for (const buffer& one : world.all) CHECK(*reinterpret_cast<const std::int32_t*>(one.data()) == 14);
  world.end();
}

TEST_CASE("a communicator that is used without a warm-up has no one-shot kernels", "[collectives][one-shot]") {
  const auto library = std::make_shared<counting_backend>();
  manual_world world{library};
  for (auto& one : world.members) world.sum(one);
  world.api->run_until_blocked();
  CHECK(*library->launches == 2);
  world.end();
}

TEST_CASE("the first communicator on a device loads the kernels of all numbers of ranks", "[collectives][one-shot]") {
  manual_world world;
  const std::size_t loaded = world.api->loaded_kernel_count();
  for (int ranks = 2; ranks <= static_cast<int>(one_shot_ranks); ++ranks)
    for (const one_shot_form form : all_one_shot_forms)
      static_cast<void>(world.api->load(device_id{0}, one_shot_kernel(ranks, form), one_shot_threads));
  CHECK(loaded > 0);
  CHECK(world.api->loaded_kernel_count() == loaded);
  world.end();
}

TEST_CASE("scratch is released once every rank's stream has been drained, and kept for good without",
          "[collectives][one-shot]") {
  const bool is_drained = GENERATE(true, false);
  const std::size_t leaks = leak_count();
  manual_world world;
  const auto used = [&] { return world.api->used_bytes(device_id{0}); };
  const std::size_t while_formed = used();
  for (auto& one : world.members) one.comm->warm_up(one.line);
  world.sum(world.members[0]); // waits for its peer
  world.api->run_until_blocked();
  world.all.clear();
  for (auto& one : world.members) one.comm->abort();
  if (is_drained) world.api->run_until_blocked();
  world.members[0].comm->drained();
  CHECK(used() >= while_formed); // the other rank's kernels may still store there
  if (is_drained) {
    world.members[1].comm->drained();
    CHECK(used() < while_formed);
  }
  for (auto& one : world.members) one.comm.reset();
  CHECK(leak_count() - leaks == (is_drained ? 0 : 1));
  if (!is_drained) CHECK(used() >= while_formed);
}

TEST_CASE("a communicator without a warm-up releases its scratch with itself", "[collectives][one-shot]") {
  const std::size_t leaks = leak_count();
  manual_world world;
  for (auto& one : world.members) {
    one.comm->abort();
    one.comm.reset();
  }
  CHECK(leak_count() == leaks);
  CHECK(world.api->used_bytes(device_id{0}) == 0);
}

TEST_CASE("a device that fails while one-shot kernels are prepared fails the forming", "[collectives][one-shot]") {
  const auto api = std::make_shared<mock_driver>(mock_options{.device_count = 2, .mode = engine_mode::manual});
  const auto kind = with_one_shot_kernels(std::make_shared<inert_backend>(), {.part_bytes = limit});
  std::vector<std::shared_ptr<communicator>> lost;
  for (int i = 0; i < 2; ++i) {
    const auto gpu = device::open(api, device_id{i});
    lost.push_back(kind->create({}, rank{i}, 2, gpu));
    const stream line{gpu};
    api->fail_next(device_id{i}, {.code = errc::device_failed, .text = "planted"});
    line.ref().call([](void*) {}, nullptr);
    api->run_until_blocked();
  }
  std::array<error, 2> got;
  {
    std::vector<std::jthread> helpers;
    for (std::size_t i = 0; i < 2; ++i) helpers.emplace_back([&, i] { got[i] = error_of([&] { lost[i]->init(); }); });
  }
  for (const error& one : got) CHECK(one.code == errc::device_failed);
}

TEST_CASE("a device without memory for scratch is a reason to do without kernels", "[collectives][one-shot]") {
  std::vector<std::string> told;
  const auto api = std::make_shared<mock_driver>(mock_options{.device_count = 2});
  const auto kind = with_one_shot_kernels(
      make_mock_backend(), {.part_bytes = limit, .on_absent = [&](const std::string& why) { told.push_back(why); }});
  const unique_id id = kind->make_unique_id();
  std::vector<small_world::member> all;
  for (int i = 0; i < 2; ++i) {
    auto gpu = device::open(api, device_id{i});
    all.push_back({gpu, kind->create(id, rank{i}, 2, gpu), stream{gpu}, memory_pool::create(gpu)});
  }
  api->exhaust_after(device_id{1}, 0);
  small_world::form(all);
  CHECK(told.size() == 1);
  small_world::close(all);
}

} // namespace troupe::tests::one_shot_backend_test
