// Clients that ask a world for registered memory and for plans, and replay these.
#include <troupe/collectives/order/lane.hpp>
#include <troupe/runtime/simulation/simulated_cast.hpp>

#include <chrono>
#include <string>
#include <utility>
#include <variant>

namespace troupe::simulation {

namespace {

using namespace std::chrono_literals;

/// The time between checks for an answer.
constexpr nanoseconds between_looks = 500us;

lane lane_of_plan(std::size_t lane) {
  return lane::named("simulated plan " + std::to_string(lane));
}

} // namespace

template <class Reply>
std::shared_ptr<value_promise<Reply>> simulated_cast::expect(const planned_request& what, epoch now,
                                                             std::function<void(Reply&)> keep) {
  const auto reply = std::make_shared<reply_promise>(ledger_.expect(what, std::nullopt, now));
  return std::make_shared<value_promise<Reply>>(
      [reply, now, keep = std::move(keep)](std::variant<Reply, error> result) {
        if (auto* const failure = std::get_if<error>(&result)) return reply->deliver(std::move(*failure));
        keep(std::get<Reply>(result));
        reply->deliver(completion{.ticket = {}, .epoch = now, .times = {}});
      });
}

void simulated_cast::wait_for(const planned_request& what) const {
  const time_point latest = steady_now() + longest(of_);
  while (!ledger_.is_answered(what) && steady_now() < latest) fibers::current()->sleep(between_looks);
}

void simulated_cast::ask_registration(const planned_request& one) {
  wait_for_time_of(one);
  const world_event now = where_.latest();
  memory_.ask_among(one, ranks_in(now), now.epoch);
  where_.register_memory(
      {.size_bytes = memory_.registered_bytes(), .epoch = now.epoch},
      expect<registration_reply>(one, now.epoch, [memory = &memory_, number = one.number](registration_reply& reply) {
        memory->open_registered(number, std::move(reply.pool));
      }));
}

void simulated_cast::ask_capture(const planned_request& one) {
  wait_for_time_of(one);
  const world_event now = where_.latest();
  const std::vector<rank> ranks = ranks_in(now);
  memory_.ask_among(one, ranks, now.epoch);
  capture_request asked{.options = {.deadline = one.deadline}, .epoch = now.epoch};
  if (one.of_requests)
    asked.steps = memory_.steps_of(one, ranks);
  else
    asked.function = memory_.function_of(one);
  const auto plan = std::make_shared<std::shared_ptr<captured_plan>>();
  where_.capture(std::move(asked), expect<capture_reply>(one, now.epoch, [plan](capture_reply& reply) {
                   *plan = std::move(reply.plan);
                 }));
  wait_for(one);
  epoch unsettled{0}; // an epoch with requests that may still run
  for (const planned_request& again : of_.requests) {
    if (again.what != operation_kind::replay || again.source != one.number || !*plan) continue;
    wait_for_time_of(again);
    if (steady_now() - began_ > of_.length + 500ms) return;
    const bool may_be_written = one.of_requests ? unsettled != epoch{0} : unsettled == where_.latest().epoch;
    if (may_be_written) continue;
    ask_replay(again, again.gives_back ? std::exchange(*plan, nullptr) : *plan);
    wait_for(again);
    if (!ledger_.is_answered(again)) return;
    memory_.settle(again);
    if (ledger_.may_still_run(again)) unsettled = where_.latest().epoch;
  }
}

void simulated_cast::ask_replay(const planned_request& one, std::shared_ptr<captured_plan> plan) {
  const world_event now = where_.latest();
  const std::vector<rank> ranks = ranks_in(now);
  memory_.ask_among(one, ranks, now.epoch);
  memory_.refill(one);
  if (!one.lane) {
    world_request asked{.parts = {}, .epoch = now.epoch, .deadline = one.deadline};
    for (std::size_t i = 0; i < ranks.size(); ++i) asked.parts.emplace_back(replay{plan});
    return where_.ask_world(std::move(asked), ledger_.expect(one, std::nullopt, now.epoch));
  }
  const epoch meant_for = now.phase == world_phase::ready ? now.epoch : epoch{0};
  if (meant_for == epoch{0} && how_ == manners::waits_for_ready) return;
  for (const rank self : ranks)
    where_.ask_rank(self, *one.lane,
                    {.what = replay{plan},
                     .epoch = meant_for,
                     .deadline = one.deadline,
                     .lane = lane_of_plan(*one.lane),
                     .retry_safe = false},
                    ledger_.expect(one, self, meant_for));
}

} // namespace troupe::simulation
