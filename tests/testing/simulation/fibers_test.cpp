/// Threads in virtual time.
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/processes/transport/shared_memory/shared_words.hpp>
#include <troupe/testing/simulation/fibers.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <chrono>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <pthread.h>

namespace troupe::tests::fibers_test {

namespace {

using namespace std::chrono_literals;

fibers::chooser first() {
  return [](std::size_t) { return std::size_t{0}; };
}

fibers::chooser seeded(unsigned seed) {
  return [generator = std::mt19937_64{seed}](std::size_t count) mutable {
    return static_cast<std::size_t>(generator() % count);
  };
}

/// A bounded exchange between makers and takers; returns who did what in which order.
std::string exchange_of(unsigned seed) {
  fibers all{seeded(seed)};
  std::mutex mutex;
  condition changed;
  int stock = 0;
  std::string log;
  std::vector<worker> workers;
  for (char name = 'a'; name < 'd'; ++name)
    workers.emplace_back([&, name] {
      for (int i = 0; i < 5; ++i) {
        fibers::current()->sleep(1ms);
        const std::lock_guard lock{mutex};
        ++stock;
        log += name;
        changed.notify_all();
      }
    });
  for (char name = 'x'; name <= 'z'; ++name)
    workers.emplace_back([&, name] {
      for (int i = 0; i < 5; ++i) {
        std::unique_lock lock{mutex};
        changed.wait(lock, [&] { return stock > 0; });
        --stock;
        log += name;
      }
    });
  for (worker& one : workers) one.join();
  REQUIRE(stock == 0);
  REQUIRE(all.living() == 0);
  return log;
}

} // namespace

TEST_CASE("a thread in virtual time does not rename the thread that plays it", "[testing][simulation]") {
  const auto name_of_this = [] {
    std::array<char, 32> kept{};
    pthread_getname_np(pthread_self(), kept.data(), kept.size());
    return std::string{kept.data()};
  };
  const std::string before = name_of_this();
  fibers all{first()};
  bool has_run = false;
  worker one{[&] {
    name_this_thread("troupe/played");
    has_run = true;
  }};
  all.run([&] { return has_run; }, steady_now() + 1s);
  one.join();
  CHECK(has_run);
  CHECK(name_of_this() == before);
}

TEST_CASE("the same choices give the same order of turns, and others another (DET-1)", "[device][fibers]") {
  const std::string once = exchange_of(7);
  CHECK(once.size() == 30);
  CHECK(exchange_of(7) == once);
  CHECK(exchange_of(8) != once);
}

TEST_CASE("time stands still while fibers can go on and then jumps to whoever waits next", "[device][fibers]") {
  fibers all{first()};
  const time_point began = steady_now();
  std::vector<nanoseconds> woke;
  worker late{[&] {
    fibers::current()->sleep(24h);
    woke.push_back(steady_now() - began);
  }};
  worker early{[&] {
    fibers::current()->sleep(3ms);
    woke.push_back(steady_now() - began);
  }};
  const auto real = std::chrono::steady_clock::now();
  late.join();
  early.join();
  CHECK(woke == std::vector<nanoseconds>{3ms, 24h});
  CHECK(std::chrono::steady_clock::now() - real < 1h);
}

TEST_CASE("a wait ends when it is notified, else at its time", "[device][fibers]") {
  fibers all{first()};
  std::mutex mutex;
  condition changed;
  bool said = false;
  bool in_time = false;
  bool too_late = true;
  worker patient{[&] {
    std::unique_lock lock{mutex};
    in_time = changed.wait_for(lock, 10ms, [&] { return said; });
  }};
  worker hasty{[&] {
    std::unique_lock lock{mutex};
    too_late = changed.wait_for(lock, 1ms, [&] { return said; });
  }};
  worker speaker{[&] {
    fibers::current()->sleep(5ms);
    const std::lock_guard lock{mutex};
    said = true;
    changed.notify_all();
  }};
  all.run([&] { return all.living() == 0; });
  CHECK(in_time);
  CHECK_FALSE(too_late);
  patient.detach();
  hasty.detach();
  speaker.detach();
}

TEST_CASE("fibers that give way while they handle exceptions keep each its own", "[device][fibers]") {
  fibers all{first()};
  std::vector<std::string> caught;
  std::vector<worker> workers;
  for (int i = 0; i < 3; ++i)
    workers.emplace_back([&, i] {
      try {
        throw std::runtime_error{std::to_string(i)};
      } catch (const std::runtime_error&) {
        fibers::current()->sleep((3 - i) * 1ms);
        try {
          throw; // the one that is being handled here, whatever others have done meanwhile
        } catch (const std::runtime_error& again) {
          caught.emplace_back(again.what());
        }
      }
    });
  for (worker& one : workers) one.join();
  CHECK(caught == std::vector<std::string>{"2", "1", "0"});
}

TEST_CASE("where all wait for each other there is nothing to be done", "[device][fibers]") {
  std::mutex mutex;
  condition never;
  fibers all{first()};
  worker stuck{[&] {
    std::unique_lock lock{mutex};
    never.wait(lock, [] { return false; });
  }};
  CHECK(all.step());
  CHECK_FALSE(all.step());
  CHECK_FALSE(all.run([] { return false; }));
  CHECK(all.living() == 1); // given up
  stuck.detach();
}

TEST_CASE("fibers of a suspended group do not run, nor do those that they have started", "[device][fibers]") {
  fibers all{first()};
  int of_group = 0, others = 0;
  const auto count = [](int& into) {
    return [&into] {
      for (int i = 0; i < 10; ++i) {
        fibers::current()->sleep(1ms);
        ++into;
      }
    };
  };
  worker child;
  worker parent{[&] {
    const fibers::group_scope in_group{7};
    child = worker{count(of_group)};
    fibers::current()->sleep(0ms);
  }};
  worker other{count(others)};
  all.sleep(4500us);
  CHECK(of_group == 4);
  all.suspend(7);
  all.sleep(20ms);
  CHECK(of_group == 4);
  CHECK(others == 10);
  all.resume(7);
  for (worker* const one : {&parent, &child, &other}) one->join();
  CHECK(of_group == 10);
}

TEST_CASE("a thread sleeps at a word of shared memory in virtual time, unless the word has changed", "[simulation]") {
  fibers all{first()};
  const std::uint64_t word = 7;
  time_point slept{}, passed{};
  const time_point began = steady_now();
  worker sleeping{[&] {
    sleep_on(word, 7, 5ms);
    slept = steady_now();
    sleep_on(word, 8, 5ms);
    passed = steady_now();
  }};
  sleeping.join();
  CHECK(slept - began == 5ms);
  CHECK(passed == slept);
}

} // namespace troupe::tests::fibers_test
