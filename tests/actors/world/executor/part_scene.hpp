/// A part of a world's executor by itself: the test decides the order's turns, and sees what the part asks for.
#pragma once

#include "actors/world/executor_scene.hpp"
#include "support/comes_true.hpp"
#include "support/pipeline_rig.hpp"

#include <troupe/actors/world/executor/executor_context.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tests {

/// An order that keeps what it is asked for until the test decides it.
class kept_order : public world_order {
public:
  struct asked_turn {
    turn_terms terms;
    turn_work work;
  };
  struct asked_capture {
    std::shared_ptr<captured_plan> plan;
    nanoseconds deadline;
    nanoseconds limit;
    capture_start start;
  };

  void ask(rank, lane_request) override {}
  void cancel(rank, lane, std::uint64_t) override {}
  void withdraw(rank, std::uint64_t, error) override {}
  void turn(turn_terms asked, turn_work work) override { turns.push_back({std::move(asked), std::move(work)}); }
  void capture(const std::shared_ptr<captured_plan>& plan, nanoseconds deadline, nanoseconds limit,
               capture_start start) override {
    captures.push_back({plan, deadline, limit, std::move(start)});
  }
  [[nodiscard]] error objection_to_capture() const override { return objection; }
  void set_registered(std::vector<std::shared_ptr<registered_pool>> pools) override { registered = std::move(pools); }
  void decline_world(std::uint64_t number, error why) override { declined.emplace_back(number, why.code); }
  std::shared_ptr<latch> leave(error) override { return nullptr; }
  std::shared_ptr<latch> close(error, bool) override { return nullptr; }
  [[nodiscard]] world_entry entry() override { return {}; }

  std::vector<asked_turn> turns;
  std::vector<asked_capture> captures;
  std::vector<std::pair<std::uint64_t, errc>> declined;
  std::vector<std::shared_ptr<registered_pool>> registered;
  error objection;
};

/// Two local ranks of a world that is ready in its first epoch.
struct part_scene : private executor_port {
  explicit part_scene(std::shared_ptr<controller_channel> channel = nullptr) : plan{plan_of(std::move(channel))} {
    static_cast<void>(state.begin());
    for (int i = 0; i < 2; ++i) static_cast<void>(state.on_formed(epoch{1}, {}));
  }
  ~part_scene() override { plan.helpers->stop(); }
  part_scene(const part_scene&) = delete;
  part_scene& operator=(const part_scene&) = delete;

  [[nodiscard]] executor_context context() { return {plan, state, now, mailbox_, *this}; }

  /// Returns the error of an answer that is there.
  template <class Value>
  [[nodiscard]] static error failure_of(std::future<Value>& answer) {
    REQUIRE(answer.wait_for(0s) == std::future_status::ready);
    return error_of([&] { static_cast<void>(answer.get()); });
  }
  /// Decides the oldest turn.
  void decide_turn(const error& why = {}, const std::vector<opened_world>& opened = {}) {
    auto next = std::move(order->turns.front());
    order->turns.erase(order->turns.begin());
    next.work(why, opened);
  }
  /// Waits for the next note, which other threads may post, and returns it. It must be a \p Note.
  template <class Note>
  [[nodiscard]] Note take() {
    decltype(mail->take()) next;
    await("a note", [&] { return next.has_value() || (next = mail->take()).has_value(); });
    return std::get<Note>(std::move(next.value()));
  }
  template <class Effect>
  [[nodiscard]] bool has_effect() const {
    return std::ranges::any_of(effects, [](const auto& one) { return std::holds_alternative<Effect>(one); });
  }
  /// Returns whether the ranks hold what they are sent.
  [[nodiscard]] bool is_held() {
    const std::size_t before = log->count("launch");
    for (std::size_t r = 0; r < 2; ++r) rig.submit(r, barrier{}, answers);
    for (int i = 0; i < 3; ++i) rig.settle();
    return log->count("launch") == before;
  }

  std::shared_ptr<peers_log> log = std::make_shared<peers_log>();
  outcome_log answers;
  pipeline_rig rig{2, {}, [this](rank self, const std::shared_ptr<device>& gpu) {
                     return std::make_shared<logging_peers>(self, 2, gpu, log);
                   }};
  world_plan plan;
  world_state state{2, {rank{0}, rank{1}}, recovery_terms{.policy = recovery_policy::fail_fast}};
  std::shared_ptr<kept_order> order = std::make_shared<kept_order>();
  formed_epoch now{rig.ranks, order};
  std::shared_ptr<kept_mail> mail = std::make_shared<kept_mail>();
  world_effects effects;        ///< Those that the part has asked for, in order.
  std::vector<std::string> ran; ///< The names of what has run on ranks.
  int announced = 0;
  int published = 0;

private:
  [[nodiscard]] world_plan plan_of(std::shared_ptr<controller_channel> channel) const {
    world_plan made{.world_size = 2,
                    .helpers = std::make_shared<deadline_pool>(),
                    .status = std::make_shared<world_status>(),
                    .services = rig.services,
                    .above = std::make_shared<arbiter>(rig.services.time, rig.services.poller),
                    .deadlines = {},
                    .pending = std::make_shared<admission_quota>(pending_limits{}, rig.services.poller),
                    .to_controller = std::move(channel)};
    for (std::size_t i = 0; i < 2; ++i)
      made.locals.push_back({rank{static_cast<int>(i)}, rig.devices[i], rig.launchers[i]});
    return made;
  }

  void carry_out(const world_effects& more) override { effects.insert(effects.end(), more.begin(), more.end()); }
  void announce() override { ++announced; }
  void publish() override { ++published; }
  void on_each(const std::vector<std::shared_ptr<rank_pipeline>>& all, const char* doing, nanoseconds,
               rank_report::kind, const rank_work& work) override {
    ran.emplace_back(doing);
    for (const auto& one : all) work(*one);
  }
  void on_every_rank(const char* doing, nanoseconds deadline, rank_report::kind report,
                     const rank_work& work) override {
    CHECK(report == rank_report::kind::maintained);
    on_each(now.pipelines, doing, deadline, report, work);
  }

  const std::shared_ptr<world_mailbox> mailbox_ = mail;
};

} // namespace troupe::tests
