#include "simulation/simulated_shells.hpp"
#include "simulation/scripted_client.hpp"

#include "simulation/caf_stepping.hpp"
#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/actors/caf/caf_host.hpp>
#include <troupe/actors/world/world_actor.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/testing/simulation/simulated_deployment.hpp>
#include <troupe/testing/simulation/simulated_faults.hpp>
#include <troupe/testing/simulation/simulated_world.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests {

using namespace simulation;
using namespace std::chrono_literals;

namespace {

/// As many as the runtime has at least, or one, with which nothing may come to a standstill either (BLK-2).
int worker_count(const scenario& of) {
  return of.seed % 3 == 0 ? 1 : 2;
}

/// Who subscribes to a world's events.
class event_listener final : public listener_handle::base {
public:
  event_listener(caf::actor_config& settings, std::shared_ptr<std::vector<world_event>> heard)
    : listener_handle::base{settings}, heard_{std::move(heard)} {}
  behavior_type make_behavior() override {
    return {[this](const world_event& event) { heard_->push_back(event); }};
  }

private:
  std::shared_ptr<std::vector<world_event>> heard_;
};

template <class Handle>
void kill(const Handle& target) {
  caf::anon_send_exit(caf::actor_cast<caf::actor>(target), caf::exit_reason::kill);
}

/// The actor system's workers are fibers, each of which takes one actor at a time.
class actor_system_under_test final : public system_under_test {
public:
  actor_system_under_test(const scenario& of, const simulated_machine& on, std::shared_ptr<fault_injector> faults,
                          simulation_ledger& ledger, trace& log)
    : of_{of},
      ledger_{ledger},
      log_{log},
      chance_{mix(of.seed, 5)},
      actors_{[] { return steady_now(); }, [this] { changed_.notify_all(); }} {
    status_->listen([this](const world_event& event) { hear(event); });
    for (int i = 0; i < worker_count(of); ++i) workers_.emplace_back([this] { work(); });
    world_plan plan = make_plan(terms_of(of), on, status_, std::move(faults));
    held_ = plan.pending;
    auto spawned = spawn_world(actors_.system(), std::move(plan));
    world_ = std::move(spawned.world);
    ranks_ = std::move(spawned.ranks);
    watch_ranks();
    listener_ = actors_.system().spawn<event_listener>(heard_);
    compat::post(world_, subscribe{listener_});
  }
  ~actor_system_under_test() override {
    over_ = true;
    changed_.notify_all();
    for (worker& one : workers_) one.join();
  }

  [[nodiscard]] world_event latest() const override { return status_->latest(); }

  void ask_world(world_request asked, reply_promise reply) override {
    if (!world_) return refuse(std::move(reply));
    tell(
        world_client_,
        [target = world_, asked = std::move(asked)](scripted_client& me, reply_promise to) {
          me.ask(target, asked, std::move(to));
        },
        std::move(reply));
  }

  void register_memory(const registration_request& asked, std::shared_ptr<registration_promise> reply) override {
    if (world_) post_request(world_, asked, std::move(reply));
  }

  void capture(rank, capture_request asked, std::shared_ptr<capture_answer> reply) override {
    if (world_) post_request(world_, std::move(asked), std::move(reply));
  }

  void ask_rank(rank self, std::size_t lane, rank_request asked, reply_promise reply) override {
    if (!ranks_) return refuse(std::move(reply));
    tell(
        client_of(self, lane),
        [target = at(self), asked = std::move(asked)](scripted_client& me, reply_promise to) {
          me.ask(target, asked, std::move(to));
        },
        std::move(reply));
  }

  void withdraw(rank self, std::size_t lane) override {
    if (!ranks_) return;
    tell(client_of(self, lane),
         [target = at(self)](scripted_client& me, reply_promise) { compat::send(&me, target, leave_lane{me.id()}); });
  }

  /// Of itself, after what it was to ask and before the replies; or killed, whatever it was about to do.
  void end_client(rank self, std::size_t lane) override {
    end(client_of(self, lane));
    if (self == rank{0}) end(world_client_);
  }

  void end_rank(rank self) override {
    if (!ranks_) return;
    kill(at(self));
  }

  void end_world(fault_kind how) override {
    if (!world_) return;
    if (how == fault_kind::killed_world) return kill(world_);
    world_ = nullptr;
    if (chance_.one_in(2)) ranks_ = nullptr;
  }

  void stop() override {
    if (world_) compat::post(world_, stop_world{});
  }
  [[nodiscard]] bool is_over() const override { return latest().phase == world_phase::stopped; }

  /// Everybody else goes, too: nobody must be left.
  void leave(fibers& threads) {
    if (const std::size_t late = ledger_.unanswered(); late > 0)
      ledger_.stuck(std::to_string(late) + " requests were never answered");
    watch_ranks();
    if (!threads.run([&] { return ended_.size() == watched_.size(); }, steady_now() + longest(of_)))
      ledger_.stuck(std::to_string(watched_.size() - ended_.size()) + " ranks' actors live on after their world's end");
    for (auto& [place, one] : clients_)
      if (one.actor) kill(std::exchange(one.actor, nullptr));
    if (world_client_.actor) kill(std::exchange(world_client_.actor, nullptr));
    kill(listener_);
    world_ = nullptr;
    ranks_ = nullptr;
    listener_ = nullptr;
    threads.run([this] { return actors_.living() == 0; }, steady_now() + longest(of_));
    if (const std::size_t left = actors_.living(); left > 0) {
      ledger_.stuck(std::to_string(left) + " actors have not ended");
      actors_.system().await_actors_before_shutdown(false);
    } else {
      actors_.system().await_all_actors_done();
    }
    judge();
  }
  /// What the world's actor holds as long as it is there.
  [[nodiscard]] std::weak_ptr<admission_quota> held() const { return held_; }

private:
  struct client {
    client_handle actor{};
    std::shared_ptr<client_script> script{};
  };

  void hear(const world_event& event) {
    if (log_.is_kept()) log_.note("world " + describe(event));
    if (event.phase == world_phase::stopped) ledger_.world_ended();
    if (rebuilding_since_ && steady_now() - *rebuilding_since_ > longest_rebuild())
      ledger_.stuck("the world was rebuilding for too long");
    rebuilding_since_ = event.phase == world_phase::rebuilding ? std::optional{steady_now()} : std::nullopt;
    watch_ranks();
    if (event.phase == world_phase::ready) judge_ranks();
  }

  /// Those who have taken the places of others, too.
  void watch_ranks() {
    for (std::size_t place = 0; ranks_ && place < ranks_->size(); ++place) {
      const collective_inner_handle& one = ranks_->at(place);
      if (watched_.insert(one.id()).second)
        caf::actor_cast<caf::abstract_actor*>(one)->attach_functor(
            [this, id = one.id()] { ended_.emplace(id, steady_now()); });
    }
  }

  /// A world that is ready has an actor for each rank, but for those whose end it has not heard of yet.
  void judge_ranks() {
    const auto jump = [](const planned_fault& one) { return one.kind == fault_kind::jump; };
    if (!ranks_ || std::ranges::any_of(of_.faults, jump)) return;
    for (std::size_t place = 0; place < ranks_->size(); ++place) {
      const auto found = ended_.find(ranks_->at(place).id());
      if (found != ended_.end() && steady_now() - found->second > 30ms)
        ledger_.wrong("the world has come back without a rank's actor (FLT-1)");
    }
  }

  /// Until it forms: what failed has been aborted, and the delay is over.
  [[nodiscard]] nanoseconds longest_rebuild() const {
    nanoseconds longest = of_.limits.form + 2 * of_.limits.abort + 16 * of_.recovery.backoff + 100ms;
    for (const planned_fault& one : of_.faults) longest += one.span;
    return longest;
  }

  void work() {
    for (;;) {
      {
        std::unique_lock lock{mutex_};
        changed_.wait_until(lock, actors_.next_delayed().value_or(time_point::max()),
                            [this] { return over_ || actors_.waiting() > 0; });
      }
      if (over_) return;
      actors_.send_delayed();
      if (actors_.waiting() == 0) continue;
      caf::resumable* const next = actors_.take(chance_.below(actors_.waiting()));
      if (chance_.one_in(3)) fibers::current()->sleep(chance_.within(chance_.one_in(20) ? 3ms : 100us));
      if (log_.is_kept()) log_.note("turn of actor " + std::to_string(compat::stepped_system::number_of(next)));
      const fibers::no_wait_scope in_turn; // BLK-1
      actors_.run(next);
    }
  }

  /// Whoever is there for that; else another takes the place.
  void tell(client& target, std::function<void(scripted_client&, reply_promise)> what, reply_promise reply = {}) {
    if (!target.actor || target.script->ended) {
      scripts_.push_back(std::make_shared<client_script>());
      target = {actors_.system().spawn<scripted_client>(scripts_.back()), scripts_.back()};
    }
    target.script->steps.push_back({{std::move(what), std::move(reply)}});
    compat::post(target.actor, std::uint64_t{target.script->steps.size() - 1});
  }

  static void refuse(reply_promise reply) {
    reply.deliver(
        error{.code = errc::abandoned, .effect = effect::rejected, .text = "nobody has a handle to ask by any more"});
  }

  void end(client& one) {
    if (!one.actor) return;
    if (chance_.one_in(2))
      kill(one.actor);
    else
      tell(one, [](scripted_client& me, reply_promise) { me.quit(caf::exit_reason::user_shutdown); });
    one.actor = nullptr;
  }

  /// What only its actors show of a world.
  void judge() {
    for (const auto& one : scripts_)
      for (const auto& [request, count] : one->replies)
        if (count > 1)
          ledger_.doubled("request " + std::to_string(request) + " of a client got " + std::to_string(count) +
                          " replies");
    for (std::size_t i = 1; i < heard_->size(); ++i)
      if ((*heard_)[i].epoch < (*heard_)[i - 1].epoch || (*heard_)[i - 1].phase == world_phase::stopped)
        ledger_.wrong("who listens heard '" + describe((*heard_)[i]) + "' after '" + describe((*heard_)[i - 1]) +
                      "' (EPO-1)");
  }

  [[nodiscard]] const collective_inner_handle& at(rank self) const {
    return ranks_->at(static_cast<std::size_t>(self.value()));
  }
  [[nodiscard]] client& client_of(rank self, std::size_t lane) { return clients_[{lane, self}]; }

  const scenario& of_;
  simulation_ledger& ledger_;
  trace& log_;
  prng chance_;
  std::shared_ptr<world_status> status_ = std::make_shared<world_status>();
  std::shared_ptr<std::vector<world_event>> heard_ = std::make_shared<std::vector<world_event>>();
  std::mutex mutex_;
  condition changed_;
  compat::stepped_system actors_;
  world_inner_handle world_;
  std::shared_ptr<rank_directory> ranks_;
  std::set<caf::actor_id> watched_;           ///< Ranks' actors, of all times.
  std::map<caf::actor_id, time_point> ended_; ///< Those of them that have ended, and when.
  listener_handle listener_;
  client world_client_;
  std::map<std::pair<std::size_t, rank>, client> clients_; ///< By lane and rank.
  std::vector<std::shared_ptr<client_script>> scripts_;
  std::weak_ptr<admission_quota> held_;
  std::optional<time_point> rebuilding_since_;
  bool over_ = false;
  std::vector<worker> workers_;
};

} // namespace

std::vector<fault_kind> shell_fault_kinds() {
  std::vector<fault_kind> all{all_fault_kinds.begin(), all_fault_kinds.end()};
  // Several times each, so that they come as often as all others together.
  for (int i = 0; i < 3; ++i)
    for (const auto one :
         {fault_kind::ended_actor, fault_kind::ended_client, fault_kind::killed_world, fault_kind::dropped_world})
      all.push_back(one);
  return all;
}

simulation_result simulate_shells(const scenario& what, bool with_trace) {
  register_message_types();
  prng chance{mix(what.seed, 4)};
  fibers threads{[&](std::size_t count) { return chance.below(count); }};
  trace log{with_trace};
  simulation_result result;
  {
    auto machine = std::make_unique<simulated_machine>(terms_of(what));
    simulated_memory memory{what, machine->devices};
    simulation_ledger ledger{what, memory, log};
    memory.on_release([&](std::size_t request, rank self) { ledger.released(request, self); });
    const auto faults = std::make_shared<simulated_faults>(what, ledger, log);
    std::weak_ptr<admission_quota> held;
    {
      actor_system_under_test where{what, *machine, faults, ledger, log};
      simulated_deployment deployment{
          what, *machine, where, memory, ledger, *faults, simulated_deployment::submit_policy::asks_any_time};
      play_out(what, deployment, where, ledger, log);
      where.leave(threads);
      held = where.held();
      result.last_epoch = where.latest().epoch.value();
    }
    if (threads.forbidden_waits() > 0)
      ledger.wrong("actors' turns waited " + std::to_string(threads.forbidden_waits()) + " times (BLK-1)");
    ledger.judge_rebuilds(result.last_epoch);
    machine = nullptr; // before what its last answers go to
    // Calls that hung for long return at last.
    threads.run([&] { return threads.living() == 0; }, steady_now() + longest(what));
    if (!held.expired()) ledger.wrong("the world's actor has ended, and somebody keeps it");
    result.found = ledger.judge();
    result.findings = ledger.findings();
    result.requests = ledger.asked();
    result.kinds = ledger.kinds();
    result.on_registered = ledger.on_registered();
    result.faults = faults->injected();
  }
  result.trace = std::move(log.text());
  return result;
}

} // namespace troupe::tests
