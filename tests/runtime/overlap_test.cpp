// Kernels of a client's own, chained with collectives without the CPU; an event promises order, never success.
#include "support/runtimes.hpp"

#include <troupe/actors.hpp>
#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/runtime/rank_lane.hpp>

#include <catch2/catch_test_macros.hpp>

#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests::overlap_test {

namespace {

constexpr std::size_t count = 1'000;
constexpr std::size_t size_bytes = count * sizeof(float);

std::vector<operation> sums(const std::vector<operand>& values) {
  std::vector<operation> parts;
  for (const operand& one : values) parts.emplace_back(all_reduce{one, one, count, dtype::f32, reduction::sum});
  return parts;
}

std::vector<operand> as_operands(const std::vector<buffer>& values) {
  return {values.begin(), values.end()};
}

/// Asks in two steps.
class overlapping_client final : public listener_handle::base {
public:
  overlapping_client(caf::actor_config& settings, const world& where, std::vector<operation> parts,
                     std::promise<enqueued>* first, std::promise<completion>* second)
    : listener_handle::base{settings},
      at_{actor_of(where)},
      parts_{std::move(parts)},
      epoch_{where.epoch()},
      first_{*first},
      second_{*second} {}

  behavior_type make_behavior() override {
    compat::request_unbounded(this, at_, overlapped_world_request{{std::move(parts_), epoch_}})
        .then(
            [this](const enqueued& told) {
              compat::request_unbounded(this, at_, outcome_request{told.outcome})
                  .then(
                      [this](const completion& last) {
                        second_.set_value(last);
                        quit();
                      },
                      [this](const caf::error& why) {
                        second_.set_exception(std::make_exception_ptr(exception{from_caf(why)}));
                        quit();
                      });
              first_.set_value(told);
            },
            [this](const caf::error& why) {
              first_.set_exception(std::make_exception_ptr(exception{from_caf(why)}));
              quit();
            });
    return {[](const world_event&) {}};
  }
  void on_exit() override { at_ = nullptr; }

private:
  world_handle at_;
  std::vector<operation> parts_;
  epoch epoch_;
  std::promise<enqueued>& first_;
  std::promise<completion>& second_;
};

/// The first collective of a kind loads its kernel, for which the driver waits until the device is idle: it must come
/// before anything holds a device.
void warm_up(world& where) {
  where.ask(sums(as_operands(ranked_values(where, count)))).get();
}

} // namespace

TROUPE_WORLD_TEST(2, "a client's work is chained with two collectives without the CPU", "[runtime][overlap]") {
  runtime rt{settings};
  world where = rt.form_world();
  warm_up(where);
  const auto values = ranked_values(where, count);
  const auto copies = ranked_values(where, count);
  std::vector<stream> lines;
  for (const rank self : where.local_ranks()) lines.emplace_back(where.device_of(self));
  // Nothing runs before the gate opens: whatever has been asked by then was chained on the devices.
  const held_client held{where.device_of(rank{0})};
  auto inputs = as_operands(values);
  inputs[0] = held.after(values[0]);
  auto first = where.ask_overlapped(sums(inputs));
  const enqueued told = first.enqueued.get();
  REQUIRE(told.ranks.size() == 2);
  CHECK_FALSE(told.ranks[0].behind->reached());

  std::vector<operand> copied;
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(told.ranks[r].rank == rank{static_cast<int>(r)});
    CHECK(told.ranks[r].launch > 0);
    const auto& gpu = where.device_of(told.ranks[r].rank);
    lines[r].ref().wait(*told.ranks[r].behind);
    lines[r].ref().copy(copies[r].data(), values[r].data(), size_bytes); // stands for a kernel
    copied.emplace_back(copies[r], record_event(gpu, lines[r]));
  }
  auto second = where.ask_overlapped(sums(copied));
  const enqueued then = second.enqueued.get();
  CHECK(then.ranks[0].launch > told.ranks[0].launch);
  CHECK(first.outcome.wait_for(0s) == std::future_status::timeout);
  CHECK_FALSE(then.ranks[0].behind->reached());

  held.open();
  CHECK(second.outcome.get().ticket == then.ticket);
  CHECK(first.outcome.get().ticket == told.ticket);
  CHECK(told.ranks[0].behind->reached());
  for (const float one : read_back(where, rank{0}, values[0])) REQUIRE(one == 3);
  for (const float one : read_back(where, rank{1}, copies[1])) REQUIRE(one == 6);
}

TROUPE_WORLD_TEST(2, "an actor is told when its request is enqueued, and asks for the outcome", "[runtime][overlap]") {
  runtime rt{settings};
  world where = rt.form_world();
  warm_up(where);
  const auto values = ranked_values(where, count);
  const held_client held{where.device_of(rank{1})};
  auto inputs = as_operands(values);
  inputs[1] = held.after(values[1]);
  std::promise<enqueued> first;
  std::promise<completion> second;
  rt.system().spawn<overlapping_client>(where, sums(inputs), &first, &second);
  const enqueued told = first.get_future().get();
  auto outcome = second.get_future();
  CHECK(outcome.wait_for(0s) == std::future_status::timeout);
  held.open();
  CHECK(outcome.get().ticket == told.ticket);
  // The claim has been redeemed.
  auto [again, future] = make_future_promise();
  told.outcome.redeem(std::move(again));
  CHECK(failure_of(std::move(future)).code == errc::invalid_argument);
}

TROUPE_WORLD_TEST(2, "ranks that are asked one by one are told one by one", "[runtime][overlap]") {
  runtime rt{settings};
  world where = rt.form_world();
  warm_up(where);
  const auto values = ranked_values(where, count);
  const lane mine = lane::named("overlap");
  rank_lane left{where, rank{0}, mine};
  rank_lane right{where, rank{1}, mine};
  const auto sum = [&](std::size_t r) { return all_reduce{values[r], values[r], count, dtype::f32, reduction::sum}; };
  auto one = left.ask_overlapped(sum(0));
  CHECK(one.enqueued.wait_for(5ms) == std::future_status::timeout); // its peer has not asked
  auto other = right.ask_overlapped(sum(1));
  stream line{where.device_of(rank{1})};
  const buffer host = where.allocate_pinned(size_bytes);
  const enqueued told = other.enqueued.get();
  REQUIRE(told.ranks.size() == 1);
  line.ref().wait(*told.ranks[0].behind);
  line.ref().copy(host.data(), values[1].data(), size_bytes);
  line.ref().synchronize();
  CHECK(host.host_span<float>()[count - 1] == 3);
  CHECK(one.enqueued.get().ranks[0].rank == rank{0});
  CHECK_NOTHROW(one.outcome.get());
  CHECK(other.outcome.get().launch == told.ranks[0].launch);
}

TROUPE_WORLD_TEST(1, "a copy, a barrier and a world of one have events too", "[runtime][overlap]") {
  runtime rt{settings};
  world where = rt.form_world();
  warm_up(where);
  const buffer host = where.allocate_pinned(64);
  const buffer there = where.allocate(rank{0}, 64);
  std::vector<overlapped> all;
  all.push_back(where.ask_overlapped(rank{0}, copy{host, there}));
  all.push_back(where.ask_overlapped(rank{0}, barrier{}));
  all.push_back(where.ask_overlapped(sums({where.allocate(rank{0}, size_bytes)})));
  for (overlapped& one : all) {
    const enqueued told = one.enqueued.get();
    REQUIRE(told.ranks.size() == 1);
    CHECK_NOTHROW(one.outcome.get());
    CHECK(told.ranks[0].behind->reached());
  }
}

TROUPE_WORLD_TEST(2, "what is refused is refused in both answers", "[runtime][overlap]") {
  runtime rt{settings};
  world where = rt.form_world();
  warm_up(where);
  auto refused = where.ask_overlapped(std::vector<operation>{barrier{}});
  for (int i = 0; i < 2; ++i) try {
      i == 0 ? static_cast<void>(refused.enqueued.get()) : static_cast<void>(refused.outcome.get());
      FAIL("one part is not for two ranks");
    } catch (const exception& failure) {
      CHECK(failure.why().code == errc::invalid_argument);
      CHECK(failure.why().effect == effect::rejected);
    }
}

TEST_CASE("an aborted world's event fires or not, and its outcome is no success (ONE-2)", "[runtime][overlap]") {
  configuration settings = mock_settings(2);
  settings.ordering = ordering::caller;
  settings.recovery.policy = recovery_policy::fail_fast; // a rebuilt world would be ready again
  settings.limits.hang = 500ms;
  runtime rt{settings};
  world where = rt.form_world();
  warm_up(where);
  const auto values = ranked_values(where, count);
  auto lonely = where.ask_overlapped(
      rank{0}, all_reduce{values[0], values[0], count, dtype::f32, reduction::sum}); // its peer never comes
  const enqueued told = lonely.enqueued.get();
  CHECK_FALSE(told.ranks[0].behind->reached());
  stream line{where.device_of(rank{0})};
  line.ref().wait(*told.ranks[0].behind); // a client's work behind it is not left waiting for ever
  const error why = failure_of(std::move(lonely.outcome));
  CHECK(why.code == errc::deadline_exceeded);
  CHECK(why.effect == effect::unknown_outcome);
  REQUIRE(reaches(where, world_phase::failed));
  line.ref().synchronize();
  CHECK(told.ranks[0].behind->reached());
}

} // namespace troupe::tests::overlap_test
