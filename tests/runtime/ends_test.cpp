// Runtimes and worlds that other threads end than those that made them.
#include "support/runtimes.hpp"

#include <troupe/device/memory/leak_report.hpp>

#include <caf/scoped_actor.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace troupe::tests {

namespace {

/// Calls \p what on a thread of its own. Returns whether it returned within 20 s.
template <class What>
bool returns_elsewhere(What what) {
  std::promise<void> done;
  auto returned = done.get_future();
  std::thread{[what = std::move(what), done = std::move(done)]() mutable {
    what();
    done.set_value();
  }}.detach();
  return returned.wait_for(20s) == std::future_status::ready;
}

/// The reports of leaks while this lives.
class leak_reports {
public:
  leak_reports() {
    on_leak([kept = kept_](const error& why) {
      const std::lock_guard lock{kept->mutex};
      kept->text += why.text;
    });
  }
  leak_reports(const leak_reports&) = delete;
  leak_reports& operator=(const leak_reports&) = delete;
  ~leak_reports() { on_leak({}); }

  [[nodiscard]] std::string text() const {
    const std::lock_guard lock{kept_->mutex};
    return kept_->text;
  }

private:
  struct reports {
    std::mutex mutex;
    std::string text;
  };
  std::shared_ptr<reports> kept_ = std::make_shared<reports>();
};

} // namespace

TEST_CASE("a runtime ends on another thread while the one that made it lives", "[runtime][ends]") {
  auto rt = std::make_shared<runtime>(mock_settings(2));
  std::optional<world> where{rt->form_world()};
  where->barrier().get();
  const std::size_t leaks = leak_count();
  REQUIRE(returns_elsewhere([rt = std::move(rt)]() mutable { rt.reset(); }));
  CHECK(where->status().phase == world_phase::stopped);
  CHECK(leak_count() == leaks);
}

TEST_CASE("a runtime ends while a thread that spawned an actor in it lives", "[runtime][ends]") {
  auto settings = mock_settings(1);
  settings.deadlines.drain = 200ms;
  auto rt = std::make_shared<runtime>(settings);
  const leak_reports reports;
  std::promise<void> spawned, may_end;
  std::thread client{[&, system = &rt->system(), end = may_end.get_future()] {
    { const caf::scoped_actor hidden{*system, true}; }
    spawned.set_value();
    end.wait();
  }};
  spawned.get_future().wait();
  CHECK(returns_elsewhere([rt = std::move(rt)]() mutable { rt.reset(); }));
#if CAF_MAJOR_VERSION < 1
  CHECK_THAT(reports.text(), Catch::Matchers::ContainsSubstring("deadlines.drain, 0.2 s"));
#endif
  may_end.set_value();
  client.join();
}

TEST_CASE("an idle world stops at once, and so does its runtime", "[runtime][ends][not-under-memcheck]") {
  const auto limit = std::chrono::milliseconds{200}; // they take a few; what waits in vain takes seconds
  auto stop = std::chrono::nanoseconds::max(), end = stop;
  for (int i = 0; i < 5 && (stop > limit || end > limit); ++i) { // the machine may be busy
    const auto took = [](auto what) {
      const auto began = std::chrono::steady_clock::now();
      what();
      return std::chrono::nanoseconds{std::chrono::steady_clock::now() - began};
    };
    auto rt = std::make_unique<runtime>(mock_settings(2));
    world stopped = rt->form_world();
    world ended = rt->form_world();
    stopped.barrier().get();
    ended.barrier().get();
    stop = std::min(stop, took([&] { stopped.stop(); }));
    end = std::min(end, took([&] { rt = nullptr; }));
    CHECK(stopped.status().phase == world_phase::stopped);
    CHECK(ended.status().phase == world_phase::stopped);
  }
  CHECK(stop < limit);
  CHECK(end < limit);
}

TEST_CASE("a function that troupe calls ends the runtime", "[runtime][ends]") {
  auto rt = std::make_shared<runtime>(mock_settings(1));
  std::promise<void> stopped;
  auto end = stopped.get_future();
  world where = rt->form_world();
  where.on_event([&](const world_event& event) {
    if (event.phase == world_phase::stopped) stopped.set_value();
  });
  const auto function = where.register_function("end", [&rt](const rank_call&) { rt.reset(); });
  CHECK_FALSE(failure_of(where.ask(rank{0}, call{function})));
  CHECK(end.wait_for(20s) == std::future_status::ready);
}

TEST_CASE("stop() in a function that troupe calls returns, and the world stops", "[runtime][ends]") {
  auto settings = mock_settings(1);
  runtime rt{settings};
  world where = rt.form_world();
  std::promise<void> returned;
  auto back = returned.get_future();
  const auto function = where.register_function("stop", [&](const rank_call&) {
    where.stop();
    returned.set_value();
  });
  auto reply = where.ask(rank{0}, call{function});
  CHECK(back.wait_for(20s) == std::future_status::ready);
  CHECK_FALSE(failure_of(std::move(reply)));
  CHECK(reaches(where, world_phase::stopped));
}

} // namespace troupe::tests
