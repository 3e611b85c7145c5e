/// Requests marked retry_safe on real threads and actors: asked in lanes, lost, run again.
#include "support/runtimes.hpp"

#include <troupe/runtime/rank_lane.hpp>
#include <troupe/testing/fault_script.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t retried_count = 64;

configuration retrying(configuration settings, std::shared_ptr<fault_injector> faults) {
  settings.recovery = {.policy = recovery_policy::keep_size, .rebuilds = 4, .backoff = 1ms};
  settings.limits.hang = 50ms;
  settings.faults = std::move(faults);
  return settings;
}

std::vector<buffer> make_results(const world& where) {
  std::vector<buffer> made;
  for (const rank self : where.local_ranks()) made.push_back(where.allocate(self, retried_count * sizeof(float)));
  return made;
}

/// Also while the world forms anew.
std::vector<float> read_when_ready(world& where, rank self, const buffer& from) {
  for (;;) {
    try {
      return read_back(where, self, from);
    } catch (const exception&) {
      std::this_thread::yield();
    }
  }
}

} // namespace

TROUPE_WORLD_TEST(2, "clients of lanes do not hear of faults where their requests are retry_safe (ONE-1, EPO-1)",
                  "[runtime][retry]") {
  const auto script = std::make_shared<testing::fault_script>();
  runtime rt{retrying(settings, script)};
  world where = rt.form_world();
  for (const std::uint64_t number : {3U, 17U}) {
    script->on(rank{1}).in(epoch{1}).operation(number).fail();
    script->on(rank{0}).in(epoch{2}).operation(number).fail();
  }
  const auto in = ranked_values(where, retried_count);
  constexpr int requests = 40;
  std::vector<int> failures(2);
  {
    std::vector<std::jthread> clients;
    for (int r = 0; r < 2; ++r)
      clients.emplace_back([&, r] {
        const auto at = static_cast<std::size_t>(r);
        for (int i = 0; i < requests;) {
          rank_lane mine{where, rank{r}, lane::named("retried " + std::to_string(i))};
          mine.acknowledge(where.epoch()); // its lane has one request alone, asked for until it has run
          const buffer out = where.allocate(rank{r}, retried_count * sizeof(float));
          const error why = failure_of(mine.ask(all_reduce{.send = in[at], .recv = out, .count = retried_count},
                                                {.deadline = 20s, .retry_safe = true}));
          // Those that not all ranks had asked for, or that came while the world formed anew, are asked for again.
          const bool asks_again = why && why.effect == effect::rejected;
          if (why && !asks_again) ++failures[at];
          if (!why && read_when_ready(where, rank{r}, out) != std::vector<float>(retried_count, 3.F))
            failures[at] += 1000;
          if (asks_again)
            std::this_thread::yield();
          else
            ++i;
        }
      });
  }
  CHECK(failures == std::vector<int>{0, 0});
  CHECK(where.epoch() >= epoch{2});
  CHECK(where.retries().put_aside >= 1);
  CHECK(where.retries().run_again >= 1);
  where.stop();
}

TROUPE_WORLD_TEST(2, "a request to the world that is retry_safe outlives a fault, and events say so",
                  "[runtime][retry]") {
  const auto script = std::make_shared<testing::fault_script>();
  runtime rt{retrying(settings, script)};
  world where = rt.form_world();
  script->on(rank{0}).in(epoch{1}).operation(0).fail();
  const auto in = ranked_values(where, retried_count);
  const auto out = make_results(where);
  std::vector<operation> parts;
  for (std::size_t r = 0; r < in.size(); ++r)
    parts.emplace_back(all_reduce{.send = in[r], .recv = out[r], .count = retried_count});
  const outcome seen = outcome_of(where.ask(std::move(parts), {.retry_safe = true}));
  REQUIRE(std::holds_alternative<completion>(seen));
  CHECK(std::get<completion>(seen).epoch == epoch{2});
  for (const rank self : where.local_ranks())
    CHECK(read_back(where, self, out[static_cast<std::size_t>(self.value())]) ==
          std::vector<float>(retried_count, 3.F));
  CHECK(where.retries() == retry_counts{.put_aside = 1, .run_again = 1});
  where.stop();
  CHECK(where.status().retries == retry_counts{.put_aside = 1, .run_again = 1});
  CHECK(describe(where.status()).find("1 requests were put aside, 1 run again, 0 given up") != std::string::npos);
}

TROUPE_WORLD_TEST(2, "a request in two steps cannot be retry_safe, and both of its replies say so",
                  "[runtime][retry]") {
  const auto script = std::make_shared<testing::fault_script>();
  runtime rt{retrying(settings, script)};
  world where = rt.form_world();
  const auto in = ranked_values(where, retried_count);
  const auto out = make_results(where);
  rank_request asked{.what = all_reduce{.send = in[0], .recv = out[0], .count = retried_count}, .epoch = where.epoch()};
  asked.retry_safe = true;
  auto both = where.ask_overlapped(rank{0}, std::move(asked));
  CHECK_THROWS_AS(both.enqueued.get(), exception);
  CHECK(failure_of(std::move(both.outcome)).code == errc::invalid_argument);
}

} // namespace troupe::tests
