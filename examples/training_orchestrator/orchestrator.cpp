#include "orchestrator.hpp"

#include "trainer.hpp"

#include <troupe/actors/actor_error.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

namespace training {

namespace {

using troupe::steady_now;
using troupe::time_point;

double seconds_between(time_point from, time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

class orchestrator final : public troupe::listener_handle::base {
public:
  orchestrator(caf::actor_config& settings, troupe::world where, plan how, std::vector<trainer_handle> trainers,
               std::promise<result> told, std::latch* ended)
    : troupe::listener_handle::base{settings},
      world_{std::move(where)},
      plan_{std::move(how)},
      trainers_{std::move(trainers)},
      told_{std::move(told)},
      ended_{*ended} {}

  behavior_type make_behavior() override {
    troupe::compat::post(world_.actor(), troupe::subscribe{troupe::listener_handle{this}});
    measure(0);
    return {[this](const troupe::world_event& event) { hear(event); }};
  }

  void on_exit() override {
    if (failure_)
      told_.set_exception(std::make_exception_ptr(troupe::exception{failure_}));
    else
      told_.set_value(std::move(result_));
    ended_.count_down();
  }

private:
  using reports = std::vector<report>;

  /// Asks every trainer; \p then gets their reports once all are there.
  template <class Order, class Done>
  void ask_all(const Order& order, Done then) {
    reports_.clear();
    for (const trainer_handle& one : trainers_)
      troupe::compat::request_unbounded(this, one, order)
          .then(
              [this, then](const report& told) {
                reports_.push_back(told);
                if (reports_.size() == trainers_.size()) then(std::exchange(reports_, {}));
              },
              [this](const caf::error& gone) { give_up(troupe::from_caf(gone)); }); // a trainer has ended
  }

  // --- what overlap hides: steps that only compute, only sum, and do both; the first of each warms up

  void measure(int round) {
    constexpr int rounds = 6;
    if (plan_.measured_steps == 0 || round == rounds) return begin();
    const int kind = round % 3;
    const time_point began = steady_now();
    const train order{.epoch = epoch_, .count = plan_.measured_steps, .computes = kind != 1, .sums = kind != 0};
    ask_all(order, [this, round, kind, began](const reports& all) {
      if (const troupe::error why = first_failure(all)) return give_up(why);
      double& taken = kind == 0 ? result_.compute_s : kind == 1 ? result_.sum_s : result_.both_s;
      taken = seconds_between(began, steady_now()) / static_cast<double>(plan_.measured_steps);
      measure(round + 1);
    });
  }

  // --- training

  void begin() {
    ask_all(roll_back{0}, [this](const reports&) {
      began_ = steady_now();
      go_on();
    });
  }

  void go_on() {
    const double elapsed = seconds_between(began_, steady_now());
    const bool over = plan_.steps > 0 ? step_ >= plan_.steps : elapsed >= plan_.time.count();
    if (step_ > saved_ && (over || step_ % plan_.checkpoint_every == 0)) return save(over);
    if (over) return finish();

    // Orders are short: what a loss costs is the steps since the last checkpoint. It is raised between two of those.
    const double progress = plan_.steps > 0 ? static_cast<double>(step_) : elapsed;
    if (plan_.fault_after >= 0 && progress >= plan_.fault_after && step_ > saved_) {
      plan_.fault_after = -1;
      raised_ = plan_.raise_fault();
    }
    std::uint64_t count = std::max<std::uint64_t>(1, plan_.checkpoint_every / 4);
    count = std::min(count, plan_.checkpoint_every - step_ % plan_.checkpoint_every);
    if (plan_.steps > 0) count = std::min(count, plan_.steps - step_);
    ask_all(train{.epoch = epoch_, .first = step_, .count = count}, [this, count](const reports& all) {
      if (const troupe::error why = first_failure(all)) return lose(why);
      if (step_ == 0) result_.first_loss = mean_loss(all);
      step_ += count;
      result_.last_loss = mean_loss(all);
      if (!result_.losses.empty()) {
        lost_rank& last = result_.losses.back();
        if (last.made_up == time_point{} && step_ >= last.at_step) last.made_up = steady_now();
      }
      go_on();
    });
  }

  void save(bool is_last) {
    ask_all(checkpoint{.epoch = epoch_, .step = step_}, [this, is_last](const reports& all) {
      if (const troupe::error why = first_failure(all)) return lose(why);
      saved_ = step_;
      if (plan_.talks && (is_last || step_ % (10 * plan_.checkpoint_every) == 0))
        std::printf("  step %llu: checkpoint, loss %.6f\n", static_cast<unsigned long long>(step_), result_.last_loss);
      if (!is_last) return go_on();
      const auto first = all.front().saved.host_span<std::byte>();
      result_.state.assign(first.begin(), first.end());
      result_.ranks_agree = std::ranges::all_of(
          all, [&](const report& one) { return std::memcmp(one.saved.data(), first.data(), first.size()) == 0; });
      finish();
    });
  }

  void finish() {
    result_.steps = step_;
    result_.seconds = seconds_between(began_, steady_now());
    quit_all();
  }

  // --- a rank is lost

  /// All trainers have answered: nothing of the epoch that failed is pending any more.
  void lose(const troupe::error& why) {
    lost_rank loss{.noticed = steady_now(), .at_step = step_, .from_step = saved_, .reason = to_string(why)};
    if (raised_.valid() && raised_.wait_for(std::chrono::seconds{0}) == std::future_status::ready)
      loss.raised = raised_.get();
    result_.losses.push_back(std::move(loss));
    waiting_ = true;
    recover();
  }

  void hear(const troupe::world_event& event) {
    if (event.phase == troupe::world_phase::failed) return give_up(event.reason);
    if (event.phase != troupe::world_phase::ready) return;
    if (event.epoch != heard_) heard_at_ = steady_now();
    heard_ = event.epoch;
    if (waiting_) recover();
  }

  /// Once the world has come back.
  void recover() {
    if (heard_ <= epoch_) return;
    waiting_ = false;
    epoch_ = heard_;
    result_.losses.back().ready = heard_at_;
    step_ = saved_;
    ask_all(roll_back{saved_}, [this](const reports&) {
      lost_rank& loss = result_.losses.back();
      loss.resumed = steady_now();
      if (plan_.talks)
        std::printf("  a rank was lost (%s)\n  back in epoch %s, from the checkpoint of step %llu\n",
                    loss.reason.c_str(), to_string(epoch_).c_str(), static_cast<unsigned long long>(saved_));
      go_on();
    });
  }

  // --- the end

  void give_up(troupe::error why) {
    failure_ = std::move(why);
    quit_all();
  }
  void quit_all() {
    for (const trainer_handle& one : trainers_) troupe::compat::post(one, training::finish{});
    quit();
  }

  static troupe::error first_failure(const reports& all) {
    const auto found = std::ranges::find_if(all, [](const report& one) { return bool{one.failure}; });
    return found == all.end() ? troupe::error{} : found->failure;
  }
  static double mean_loss(const reports& all) {
    double sum = 0;
    for (const report& one : all) sum += one.loss;
    return sum / static_cast<double>(all.size());
  }

  troupe::world world_;
  plan plan_;
  std::vector<trainer_handle> trainers_;
  std::promise<result> told_;
  std::latch& ended_;
  result result_;
  troupe::error failure_;
  reports reports_;
  troupe::epoch epoch_ = world_.epoch(); ///< That orders are for.
  troupe::epoch heard_ = epoch_;
  time_point began_{}, heard_at_{};
  std::uint64_t step_ = 0;  ///< Done.
  std::uint64_t saved_ = 0; ///< The last checkpoint.
  std::future<time_point> raised_;
  bool waiting_ = false;
};

} // namespace

void register_messages() {
  TROUPE_REGISTER_LOCAL_TYPES(training);
}

result run_training(troupe::runtime& rt, troupe::world& where, const plan& how) {
  std::latch ended{where.size() + 1};
  std::vector<trainer_handle> trainers;
  for (const troupe::rank self : where.local_ranks())
    trainers.push_back(rt.system().spawn<trainer>(where, self, how.shape, &ended));
  std::promise<result> told;
  auto outcome = told.get_future();
  rt.system().spawn<orchestrator>(where, how, std::move(trainers), std::move(told), &ended);
  ended.wait();
  return outcome.get();
}

} // namespace training
