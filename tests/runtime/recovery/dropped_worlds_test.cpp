// A world ends with its last handle, unless its actors are held elsewhere.
#include "support/outcomes.hpp"
#include "support/runtimes.hpp"

#include <troupe/actors.hpp>
#include <troupe/runtime/metrics/metrics_source.hpp>
#include <troupe/runtime/rank_lane.hpp>

#include <caf/scoped_actor.hpp>

#include <catch2/catch_test_macros.hpp>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::tests {

namespace {

constexpr std::size_t count = 64;

/// Of a world whose handles may all be gone.
class watched_end {
public:
  explicit watched_end(world& where) {
    where.on_event([end = end_](const world_event& event) {
      if (event.phase == world_phase::stopped) end->set_value();
    });
  }
  [[nodiscard]] bool comes_within(std::chrono::seconds patience) {
    return seen_.wait_for(patience) == std::future_status::ready;
  }

private:
  std::shared_ptr<std::promise<void>> end_ = std::make_shared<std::promise<void>>();
  std::future<void> seen_ = end_->get_future();
};

std::size_t worlds_of(const runtime& rt) {
  return rt.metrics()->read()->worlds.size();
}

} // namespace

TEST_CASE("more worlds can be formed and dropped than there are completion slots", "[runtime][handles]") {
  runtime rt{mock_settings(4)};
  for (int i = 0; i < 300; ++i) {
    world where = rt.form_world();
    where.barrier().get();
  }
  world last = rt.form_world();
  last.barrier().get();
  CHECK(worlds_of(rt) < 20);
}

TEST_CASE("requests in flight when the last handle is dropped succeed", "[runtime][handles][ONE-1]") {
  runtime rt{mock_settings(2)};
  std::optional<world> where{rt.form_world()};
  watched_end end{*where};
  const held_client client{where->device_of(rank{0})};
  const auto values = ranked_values(*where, count);
  std::vector<operation> parts;
  for (const buffer& one : values) parts.emplace_back(all_reduce{.send = one, .recv = one, .count = count});
  std::get<all_reduce>(parts[0]).send = client.after(values[0]);
  auto reply = where->ask(std::move(parts));
  std::optional<world> copy{*where};
  where.reset();
  CHECK(copy->status().phase == world_phase::ready);
  copy.reset();
  client.open();
  CHECK_FALSE(failure_of(std::move(reply)));
  CHECK(end.comes_within(20s));
}

TEST_CASE("the last handle of a world may be its lane's", "[runtime][handles]") {
  runtime rt{mock_settings(1)};
  std::optional<world> where{rt.form_world()};
  watched_end end{*where};
  std::optional<rank_lane> line{std::in_place, *where, rank{0}, lane::named("a client")};
  where.reset();
  CHECK_FALSE(failure_of(line->ask(barrier{})));
  line.reset();
  CHECK(end.comes_within(20s));
}

TEST_CASE("a world outlives its handles while its parts have some", "[runtime][handles]") {
  runtime rt{mock_settings(2)};
  std::optional<world> where{rt.form_world()};
  watched_end end{*where};
  auto parts = where->split({{.name = "both", .members = {rank{0}, rank{1}}}});
  watched_end end_of_part{*parts[0].handle};
  where.reset();
  CHECK_FALSE(failure_of(parts[0].handle->barrier()));
  parts.clear();
  CHECK(end_of_part.comes_within(20s));
  CHECK(end.comes_within(20s));
}

TEST_CASE("a world stays for those who hold its actors, and ends after them", "[runtime][handles]") {
  runtime rt{mock_settings(2)};
  std::optional<world> where{rt.form_world()};
  watched_end end{*where};
  world_handle held = actor_of(*where);
  where.reset();
  static_cast<void>(rt.form_world()); // which looks after the others
  CHECK_FALSE(end.comes_within(0s));
  {
    caf::scoped_actor self{rt.system()};
    bool answered = false;
    compat::request_unbounded(self.ptr(), held, world_request{.parts = {barrier{}, barrier{}}, .epoch = epoch{1}})
        .receive([&](const completion&) { answered = true; },
                 [](const caf::error& why) { FAIL(to_string(from_caf(why))); });
    CHECK(answered);
  }
  held = world_handle{};
  bool has_ended = false;
  for (int i = 0; i < 100 && !has_ended; ++i) {
    static_cast<void>(rt.form_world()); // a message that is being handled may hold an actor, too
    has_ended = end.comes_within(1s);
  }
  CHECK(has_ended);
}

TEST_CASE("a handle may outlive its runtime", "[runtime][handles]") {
  const auto formed = [] {
    runtime rt{mock_settings(2)};
    return std::make_unique<world>(rt.form_world());
  };
  const std::unique_ptr<world> where = formed();
  CHECK(where->status().phase == world_phase::stopped);
  CHECK(failure_of(where->barrier()).code == errc::stopping);
  CHECK(failure_of(where->ask({barrier{}, barrier{}})).code == errc::stopping);
}

} // namespace troupe::tests
