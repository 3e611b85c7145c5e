// A fault of one of several worlds on the same GPUs is that world's alone.
#include "support/outcomes.hpp"
#include "support/runtimes.hpp"

#include <troupe/collectives/faults/armed_faults.hpp>
#include <troupe/runtime/runtime.hpp>

#include <catch2/catch_test_macros.hpp>

#include <thread>
#include <variant>

using namespace troupe;
using namespace std::chrono_literals;
using troupe::tests::gpu_settings;
using troupe::tests::mock_settings;

namespace {

/// Faults of broadcasts alone, which one of two worlds is asked for.
class broadcast_faults final : public fault_injector {
public:
  armed_faults armed;

  [[nodiscard]] bool before_launch(const fault_place& who, std::span<const operation* const> all) override {
    return !std::holds_alternative<broadcast>(*all.front()) || armed.before_launch(who, all);
  }
  void before_abort(const fault_place& who) override { armed.before_abort(who); }
  void after_abort(const fault_place& who) override { armed.after_abort(who); }
};

constexpr std::size_t carried_count = 1024;

/// One buffer for each rank; what is in it does not matter here.
std::vector<buffer> room(const world& where) {
  std::vector<buffer> made;
  for (const rank self : where.local_ranks()) made.push_back(where.allocate(self, carried_count * sizeof(float)));
  return made;
}

std::future<completion> carry(world& where, const std::vector<buffer>& values) {
  std::vector<operation> parts;
  for (const buffer& one : values)
    parts.emplace_back(broadcast{.send = values.front(), .recv = one, .count = carried_count, .root = rank{0}});
  return where.ask(std::move(parts));
}

std::future<completion> sum(world& where, const std::vector<buffer>& values) {
  return where.all_reduce(values, values, carried_count, dtype::f32, reduction::max);
}

bool succeeds(std::future<completion> reply) {
  return troupe::tests::failure_of(std::move(reply)).code == errc::none;
}

/// The first launch of an NCCL kernel loads it, which may take longer than a hang verdict.
void load_both_kernels(const configuration& settings) {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = room(where);
  REQUIRE(succeeds(carry(where, values)));
  REQUIRE(succeeds(sum(where, values)));
}

} // namespace

TROUPE_WORLD_TEST(2, "a world whose peer never comes fails alone, although others on its GPUs wait behind it (FLT-1)",
                  "[runtime][faults]") {
  load_both_kernels(settings);
  const auto faults = std::make_shared<broadcast_faults>();
  settings.faults = faults;
  settings.fusion.mode = fusion::off; // several launches, of which the later ones cannot begin
  settings.recovery.policy = recovery_policy::keep_size;
  settings.limits.hang = 200ms;
  runtime rt{settings};
  world whole = rt.form_world();
  world carrying = *whole.split({{.name = "carrying", .members = {rank{0}, rank{1}}}}).front().handle;
  const auto carried = room(whole);
  const auto summed = room(whole);
  REQUIRE(succeeds(carry(carrying, carried)));

  const auto withheld = faults->armed.arm(armed_call::withheld_launch, rank{1});
  std::vector<std::future<completion>> lost;
  for (int i = 0; i < 4; ++i) lost.push_back(carry(carrying, carried));
  REQUIRE(withheld.wait_for(10s) == std::future_status::ready);
  for (int i = 0; i < 3; ++i) CHECK(succeeds(sum(whole, summed))); // while the others hang, and afterwards
  for (auto& one : lost) CHECK_FALSE(succeeds(std::move(one)));
  CHECK(whole.status().epoch == epoch{1});

  const auto until = std::chrono::steady_clock::now() + 30s;
  while (carrying.status().phase != world_phase::ready && std::chrono::steady_clock::now() < until)
    std::this_thread::yield();
  CHECK(carrying.status().epoch == epoch{2});
  faults->armed.release();
  CHECK(succeeds(carry(carrying, room(whole))));
  CHECK(succeeds(sum(whole, summed)));
}
