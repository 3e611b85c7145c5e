#include <troupe/completion/poller/inbox.hpp>
#include <troupe/completion/sources/recycling.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace troupe::tests {

namespace {

struct base : recycled {
  virtual ~base() = default;
};
struct derived final : base {
  std::array<std::uint64_t, 40> what{};
};

/// What is written into a block, to be found there by whoever ends it.
void mark(void* block, std::size_t size_bytes, std::size_t value) {
  std::memset(block, static_cast<int>(value % 251), size_bytes);
}
bool is_marked(const void* block, std::size_t size_bytes, std::size_t value) {
  const auto* bytes = static_cast<const unsigned char*>(block);
  return std::all_of(bytes, bytes + size_bytes, [&](unsigned char one) { return one == value % 251; });
}

} // namespace

TEST_CASE("blocks of every size are apart and aligned to cache lines", "[completion]") {
  std::vector<std::pair<void*, std::size_t>> all;
  for (std::size_t size = 1; size < 5'000; size += 37) {
    void* const block = take_block(size);
    REQUIRE(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
    mark(block, size, size);
    all.emplace_back(block, size);
  }
  for (const auto& [block, size] : all) CHECK(is_marked(block, size, size));
  for (const auto& [block, size] : all) give_block(block, size);
}

TEST_CASE("a thread reuses the memory that it has released, except for sizes that are the heap's", "[completion]") {
  if (!recycles_blocks) SKIP("under a sanitizer all blocks are the heap's");
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{64}, std::size_t{65}, std::size_t{700}, std::size_t{2'048}}) {
    void* const block = take_block(size);
    give_block(block, size);
    void* const again = take_block(size);
    CHECK(again == block);
    give_block(again, size);
  }
}

TEST_CASE("blocks that another thread ends come back to the thread that makes them", "[completion]") {
  if (!recycles_blocks) SKIP("under a sanitizer all blocks are the heap's");
  constexpr std::size_t size = 320, rounds = 200, each = 64;
  std::set<void*> seen;
  for (std::size_t round = 0; round < rounds; ++round) {
    std::vector<void*> mine;
    for (std::size_t i = 0; i < each; ++i) mine.push_back(take_block(size));
    seen.insert(mine.begin(), mine.end());
    std::thread{[&] {
      for (void* one : mine) give_block(one, size);
      // A thread that ends gives what it has kept to the heap; what it had too much of is where others find it.
    }}.join();
  }
  CHECK(seen.size() <=
        rounds * each / 2 + each); // half of each round is a chain for others; those of the heap may be new
}

TEST_CASE("blocks pass between makers and enders without being given out twice", "[completion]") {
  constexpr std::size_t makers = 3, each = 20'000;
  struct parcel : inbox_node<parcel> {
    std::size_t size = 0, value = 0;
    void* block = nullptr;
  };
  inbox<parcel> line;
  std::atomic<std::size_t> wrong{0}, ended{0};
  std::vector<std::thread> all;
  for (std::size_t maker = 0; maker < makers; ++maker)
    all.emplace_back([&, maker] {
      for (std::size_t i = 0; i < each; ++i) {
        auto one = std::allocate_shared<parcel>(recycling_allocator<parcel>{});
        one->size = 1 + (i * 97 + maker) % 1'500;
        one->value = i + maker;
        one->block = take_block(one->size);
        mark(one->block, one->size, one->value);
        line.push(std::move(one));
      }
    });
  std::thread ender{[&] {
    while (ended < makers * each)
      line.take_all([&](const std::shared_ptr<parcel>& one) {
        if (!is_marked(one->block, one->size, one->value)) ++wrong;
        give_block(one->block, one->size);
        ++ended;
      });
  }};
  for (std::thread& one : all) one.join();
  ender.join();
  CHECK(wrong == 0);
}

TEST_CASE("objects that are deleted through a base give back all of their block", "[completion]") {
  if (!recycles_blocks) SKIP("under a sanitizer all blocks are the heap's");
  const void* place = nullptr;
  {
    const std::unique_ptr<base> one = std::make_unique<derived>();
    place = one.get();
  }
  const std::unique_ptr<base> other = std::make_unique<derived>();
  CHECK(other.get() == place);
}

} // namespace troupe::tests
