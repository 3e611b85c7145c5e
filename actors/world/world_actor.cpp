#include <troupe/actors/world/world_actor.hpp>

#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/actors/rank/collective_actor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>

namespace troupe {

namespace {

/// Posts notes to the actor's own mailbox.
class actor_mailbox final : public world_mailbox {
public:
  explicit actor_mailbox(world_actor* self) : to_{self} {}

  void post(world_note what) override { to_.post(world_notice{std::move(what)}); }
  void post_after(nanoseconds delay, world_note what) override { to_.post_after(delay, world_notice{std::move(what)}); }

private:
  compat::weak_handle<world_inner_handle> to_; // weak, because this actor owns the pipelines that post here
};

/// A sub-world of the world of this process.
class sub_world_actor final : public sub_world_access {
public:
  explicit sub_world_actor(world_inner_handle to) : to_{std::move(to)} {}
  void tell(controller_directive what) override { compat::post(to_, world_notice{std::move(what)}); }
  void stop() override { compat::post(to_, stop_world{}); }

private:
  world_inner_handle to_;
};

} // namespace

world_actor::world_actor(caf::actor_config& settings, world_plan plan, std::vector<collective_inner_handle> actors,
                         std::shared_ptr<rank_directory> ranks, std::vector<std::shared_ptr<collective_state>> states)
  : world_inner_handle::base{settings},
    mail_{std::make_shared<actor_mailbox>(this)},
    executor_{std::move(plan), std::move(states), mail_, *this},
    actors_{std::move(actors)},
    ranks_{std::move(ranks)},
    sub_worlds_{executor_, mail_, [this](std::uint64_t name, world_plan made, sub_world& into) {
                  return spawn_sub_world(name, std::move(made), into);
                }} {}

void world_actor::on_exit() {
  ending_ = true;
  if (!left_) {
    sub_worlds_.stop_all();
    executor_.kill({.code = errc::abandoned, .text = "the world's actor was ended" + exit_.text()});
    dismiss_ranks();
  }
  executor_.let_go();
  actors_.clear();
  ranks_ = nullptr;
}

void world_actor::watch_rank(std::size_t place) {
  watches_.add(this, actors_[place], [this, place](const caf::error& reason) {
    if (!left_) executor_.on_rank_ended(place, to_string(reason));
  });
}

std::shared_ptr<collective_state> world_actor::replace_rank(std::size_t place, rank self) {
  auto state = std::make_shared<collective_state>(self);
  actors_[place] = system().spawn<collective_actor>(state);
  ranks_->replace(place, {actors_[place], state});
  watch_rank(place);
  return state;
}

void world_actor::leave() {
  sub_worlds_.stop_all(); // none serves any more
  left_ = true;
  dismiss_ranks();
  quit();
}

void world_actor::dismiss_ranks() {
  for (const auto& one : actors_) compat::post(one, troupe::leave{});
}

std::unique_ptr<sub_world_access> world_actor::spawn_sub_world(std::uint64_t name, world_plan plan, sub_world& made) {
  plan.status->listen([self = caf::actor_cast<world_inner_handle>(this), name](const world_event& event) {
    compat::post(self, sub_worlds_report{name, event});
  });
  auto spawned = spawn_world(system(), std::move(plan));
  made.world = world_handle{spawned.world}; // direct assignment would make CAF 1.x compare the wrong types
  made.parts->ranks = std::move(spawned.ranks);
  made.parts->actor = spawned.world;
  return std::make_unique<sub_world_actor>(std::move(spawned.world));
}

void world_actor::epoch_ended(const error& why, bool for_good) {
  sub_worlds_.epoch_ended(why, for_good);
}

std::shared_ptr<latch> world_actor::quiesce(const error& why) {
  return sub_worlds_.quiesce(why);
}

bool world_actor::stop_sub_worlds(const stop_directive& told) {
  return sub_worlds_.stop_as_told(told);
}

void world_actor::formed_again() {
  sub_worlds_.formed_again();
}

void world_actor::perform(world_request asked, reply_promise reply, std::uint64_t client) {
  executor_.gate().accept(std::move(asked), std::move(reply), client);
}
void world_actor::perform(const remote_request& asked, reply_promise reply) {
  try {
    world_request what = asked.what(); // may throw, before the reply is moved
    perform(std::move(what), std::move(reply));
  } catch (...) {
    reply.deliver(current_error());
  }
}

spawned_world spawn_world(caf::actor_system& system, world_plan plan) {
  std::vector<std::shared_ptr<collective_state>> states;
  std::vector<collective_inner_handle> actors;
  std::vector<rank_access> accesses;
  for (const local_rank& one : plan.locals) {
    states.push_back(std::make_shared<collective_state>(one.self));
    actors.push_back(system.spawn<collective_actor>(states.back()));
    accesses.push_back({actors.back(), states.back()});
  }
  const auto ranks = std::make_shared<rank_directory>(std::move(accesses));
  return {system.spawn<world_actor>(std::move(plan), std::move(actors), ranks, std::move(states)), ranks};
}

namespace {

/// Returns the actor's id; 0: no actor.
std::uint64_t number_of(const caf::strong_actor_ptr& asker) noexcept {
  return asker ? asker->id() : 0;
}

} // namespace

compat::enqueue_result world_actor::enqueue(caf::mailbox_element_ptr what, compat::enqueue_host* host) {
  if (auto asked = compat::take_message<world_request>(*what)) {
    const std::uint64_t client = number_of(what->sender);
    perform(std::move(*asked), answer_to({this, *what}), client);
    return compat::enqueue_result(true);
  }
  if (const auto asked = compat::take_message<remote_request>(*what)) {
    perform(*asked, answer_to({this, *what}));
    return compat::enqueue_result(true);
  }
  if (auto asked = compat::take_message<overlapped_world_request>(*what)) {
    // One part per rank; other counts are refused later.
    const std::size_t parts = std::max<std::size_t>(asked->what.parts.size(), 1);
    const std::uint64_t client = number_of(what->sender);
    perform(std::move(asked->what), make_overlapped_promise(value_promise_to<enqueued>({this, *what}), parts), client);
    return compat::enqueue_result(true);
  }
  if (const auto query = compat::take_message<outcome_request>(*what)) {
    query->outcome.redeem(answer_to({this, *what}));
    return compat::enqueue_result(true);
  }
  exit_.see(*what, address());
  return world_inner_handle::base::enqueue(std::move(what), host);
}

template <class Reply, class Request>
caf::result<Reply> world_actor::answer_later(Request& asked) {
  perform(std::move(asked), take_value_promise<Reply>(this));
  return caf::delegated<Reply>{};
}

world_actor::behavior_type world_actor::make_behavior() {
  for (std::size_t i = 0; i < actors_.size(); ++i) watch_rank(i);
  executor_.begin();
  return {
      // The next four handlers run only if enqueue() could not unpack the message and left it to CAF.
      [this](world_request& asked) -> caf::result<completion> {
        const std::uint64_t client = number_of(current_sender());
        perform(std::move(asked), take_answer(this), client);
        return caf::delegated<completion>{};
      },
      [this](const remote_request& asked) -> caf::result<completion> {
        perform(asked, take_answer(this));
        return caf::delegated<completion>{};
      },
      [this](overlapped_world_request& asked) -> caf::result<enqueued> {
        const std::size_t parts = std::max<std::size_t>(asked.what.parts.size(), 1);
        const std::uint64_t client = number_of(current_sender());
        perform(std::move(asked.what), make_overlapped_promise(take_value_promise<enqueued>(this), parts), client);
        return caf::delegated<enqueued>{};
      },
      [this](const outcome_request& query) -> caf::result<completion> {
        query.outcome.redeem(take_answer(this));
        return caf::delegated<completion>{};
      },
      [this](const find_memory_request& asked) -> caf::result<remote_buffer> {
        executor_.gate().find(asked.target, asked.name, executor_.plan().deadlines.operation,
                              take_value_promise<remote_buffer>(this));
        return caf::delegated<remote_buffer>{};
      },
      [this](split_request& asked) { return answer_later<split_reply>(asked); },
      [this](registration_request& asked) { return answer_later<registration_reply>(asked); },
      [this](suspension_request& asked) { return answer_later<suspension_reply>(asked); },
      [this](resumption_request& asked) { return answer_later<resumption_reply>(asked); },
      [this](capture_request& asked) { return answer_later<capture_reply>(asked); },
      [this](leave_request& asked) { return answer_later<leave_reply>(asked); },
      [this](credit_request& asked) { return answer_later<credit>(asked); },
      [this](status_query) { return executor_.plan().status->latest(); },
      [this](const ready_query& asked) -> caf::result<world_event> {
        executor_.plan().status->when_ready(asked.after, [reply = take_value_promise<world_event>(this)](
                                                             const world_event& now) { reply->deliver(now); });
        return caf::delegated<world_event>{};
      },
      [this](capabilities_query) {
        const auto& able = executor_.plan().services.able;
        return able ? *able : capabilities{};
      },
      [this](subscribe& query) {
        compat::send(this, query.listener, executor_.event());
        executor_.plan().status->listen([this, to = std::move(query.listener)](const world_event& event) {
          ending_ ? compat::post(to, event) : compat::send(this, to, event);
        });
      },
      [this](stop_world) { sub_worlds_.stop(); },
      [this](posted_to_world& posted) {
        std::visit(
            [this](auto& one) {
              one.reply->set_may_have_run(true);
              perform(std::move(one.what), std::move(one.reply));
            },
            posted.what);
      },
      [this](world_notice& notice) { executor_.on(std::move(notice.what)); },
      [this](const sub_worlds_report& report) { sub_worlds_.heard(report); },
  };
}

} // namespace troupe
