// A fault of one of several worlds on the same GPUs is that world's alone.
#include "support/outcomes.hpp"
#include "support/runtimes.hpp"

#include <troupe/runtime/runtime.hpp>
#include <troupe/testing/fault_script.hpp>

#include <catch2/catch_test_macros.hpp>

#include <thread>
#include <variant>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

/// Faults of minima alone, which one of two worlds is asked for. (A small broadcast needs no peer to end at its root.)
class faults_of_minima final : public fault_injector {
public:
  testing::fault_script script;

  [[nodiscard]] bool before_launch(const fault_place& who, std::span<const operation* const> all) override {
    const auto* const what = std::get_if<all_reduce>(all.front());
    return what == nullptr || what->op != reduction::min || script.before_launch(who, all);
  }
  void before_abort(const fault_place& who) override { script.before_abort(who); }
  void after_abort(const fault_place& who) override { script.after_abort(who); }
};

constexpr std::size_t element_count = 1024;

/// One buffer for each rank; what is in it does not matter here.
std::vector<buffer> room(const world& where) {
  std::vector<buffer> made;
  for (const rank self : where.local_ranks()) made.push_back(where.allocate(self, element_count * sizeof(float)));
  return made;
}

std::future<completion> minimum(world& where, const std::vector<buffer>& values) {
  return where.all_reduce(values, values, element_count, dtype::f32, reduction::min);
}

std::future<completion> maximum(world& where, const std::vector<buffer>& values) {
  return where.all_reduce(values, values, element_count, dtype::f32, reduction::max);
}

bool succeeds(std::future<completion> reply) {
  return troupe::tests::failure_of(std::move(reply)).code == errc::none;
}

/// The first launch of an NCCL kernel loads it, which may take longer than a hang verdict.
void load_both_kernels(const configuration& settings) {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = room(where);
  REQUIRE(succeeds(minimum(where, values)));
  REQUIRE(succeeds(maximum(where, values)));
}

} // namespace

// Under memcheck the kernels of the other world wait for the one that hangs, and are found to hang as well.
TROUPE_WORLD_TEST(2, "a world whose peer never comes fails alone, although others on its GPUs wait behind it (FLT-1)",
                  "[runtime][faults][not-under-memcheck]") {
  load_both_kernels(settings);
  const auto faults = std::make_shared<faults_of_minima>();
  settings.faults = faults;
  settings.fusion.mode = fusion::off; // several launches, of which the later ones cannot begin
  settings.recovery.policy = recovery_policy::keep_size;
  settings.limits.hang = 500ms;
  runtime rt{settings};
  world whole = rt.form_world();
  world failing = *whole.split({{.name = "failing", .members = {rank{0}, rank{1}}}}).front().handle;
  const auto lost_values = room(whole);
  const auto served = room(whole);
  REQUIRE(succeeds(minimum(failing, lost_values)));

  const auto withheld = faults->script.on(rank{1}).next_operation().hang();
  std::vector<std::future<completion>> lost;
  for (int i = 0; i < 4; ++i) lost.push_back(minimum(failing, lost_values));
  REQUIRE(withheld.wait_for(10s) == std::future_status::ready);
  for (int i = 0; i < 3; ++i) CHECK(succeeds(maximum(whole, served))); // while the others hang, and afterwards
  for (auto& one : lost) CHECK_FALSE(succeeds(std::move(one)));
  CHECK(whole.status().epoch == epoch{1});

  const auto until = std::chrono::steady_clock::now() + 30s;
  const auto is_back = [&] {
    const world_event now = failing.status();
    return now.phase == world_phase::ready && now.epoch == epoch{2};
  };
  while (!is_back() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  INFO("the world is " << to_string(failing.status().phase) << " in epoch " << failing.status().epoch.value() << ": "
                       << failing.status().reason.text);
  CHECK(is_back());
  faults->script.release();
  CHECK(succeeds(minimum(failing, room(whole))));
  CHECK(succeeds(maximum(whole, served)));
}
