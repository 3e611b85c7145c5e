// What many hand to one arrives once, each thread's in its own order, and nothing is kept too long.
#include <troupe/completion/poller/inbox.hpp>

#include <catch2/catch_test_macros.hpp>

#include <memory>
#include <thread>
#include <vector>

namespace troupe::tests {

namespace {

struct letter : inbox_node<letter> {
  letter(int who, int which) : sender{who}, number{which} {}
  int sender;
  int number;
};

} // namespace

TEST_CASE("an inbox gives out what was put in, oldest first", "[completion]") {
  inbox<letter> box;
  CHECK(box.empty());
  for (int i = 0; i < 3; ++i) box.push(std::make_shared<letter>(0, i));
  CHECK_FALSE(box.empty());
  std::vector<int> seen;
  CHECK(box.take_all([&](const std::shared_ptr<letter>& one) { seen.push_back(one->number); }));
  CHECK(seen == std::vector{0, 1, 2});
  CHECK_FALSE(box.take_all([](const std::shared_ptr<letter>&) { FAIL("it was empty"); }));
}

TEST_CASE("an item that arrives while an inbox is emptied is there the next time", "[completion]") {
  inbox<letter> box;
  box.push(std::make_shared<letter>(0, 0));
  CHECK(box.take_all([&](const std::shared_ptr<letter>& one) {
    box.push(one); // it is out, so it may go in again
    CHECK(one->number == 0);
  }));
  CHECK(box.take_all([](const std::shared_ptr<letter>& one) { CHECK(one->number == 0); }));
}

TEST_CASE("an inbox lets go of what it has given out, and at its end of the rest", "[completion]") {
  std::weak_ptr<letter> taken;
  std::weak_ptr<letter> left;
  {
    inbox<letter> box;
    auto first = std::make_shared<letter>(0, 0);
    taken = first;
    box.push(std::move(first));
    box.take_all([](const std::shared_ptr<letter>&) {});
    CHECK(taken.expired());
    auto second = std::make_shared<letter>(0, 1);
    left = second;
    box.push(std::move(second));
    CHECK_FALSE(left.expired());
  }
  CHECK(left.expired());
}

TEST_CASE("letters of several threads all arrive, each thread's in order", "[completion]") {
  constexpr int senders = 4;
  constexpr int each = 20'000;
  inbox<letter> box;
  std::vector<std::jthread> threads;
  for (int s = 0; s < senders; ++s)
    threads.emplace_back([&box, s] {
      for (int i = 0; i < each; ++i) box.push(std::make_shared<letter>(s, i));
    });
  std::vector<int> next(senders, 0);
  int seen = 0;
  bool ordered = true;
  while (seen < senders * each)
    box.take_all([&](const std::shared_ptr<letter>& one) {
      ordered = ordered && one->number == next[static_cast<std::size_t>(one->sender)]++;
      ++seen;
    });
  CHECK(ordered);
  CHECK(box.empty());
}

} // namespace troupe::tests
