#include <troupe/collectives/sequencing/lane.hpp>
#include <troupe/runtime/simulation/simulated_faults.hpp>
#include <troupe/runtime/simulation/simulated_world.hpp>
#include <troupe/runtime/simulation/simulation.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::simulation {

namespace {

using namespace std::chrono_literals;

/// Those who ask, and the faults that lie outside the communicators. Each is a fiber.
class play {
public:
  play(const scenario& of, simulated_machine& on, simulated_world& where, const simulated_memory& memory,
       simulation_ledger& ledger, simulated_faults& faults)
    : of_{of}, on_{on}, where_{where}, memory_{memory}, ledger_{ledger}, faults_{faults}, silent_until_(of.lanes) {
    for (auto& lane : silent_until_) lane.resize(static_cast<std::size_t>(of.ranks));
    begin([this] { ask_world(); });
    for (std::size_t lane = 0; lane < of.lanes; ++lane)
      for (int r = 0; r < of.ranks; ++r) begin([this, lane, r] { ask_in(lane, rank{r}); });
    for (const planned_fault& one : of.faults) begin([this, &one] { raise(one); });
  }
  ~play() {
    for (worker& one : cast_) one.detach();
  }
  play(const play&) = delete;
  play& operator=(const play&) = delete;

  [[nodiscard]] bool all_asked() const noexcept { return busy_ == 0; }

private:
  void begin(std::function<void()> part) {
    ++busy_;
    cast_.emplace_back([this, part = std::move(part)] {
      part();
      --busy_;
    });
  }

  static void wait_until(time_point when) {
    if (when > steady_now()) fibers::current()->sleep(when - steady_now());
  }

  void ask_world() {
    for (const planned_request& one : of_.requests) {
      if (one.lane) continue;
      wait_until(began_ + one.at);
      world_request asked{.parts = {}, .epoch = where_.latest().epoch, .deadline = one.deadline};
      for (int r = 0; r < of_.ranks; ++r) asked.parts.push_back(memory_.part_of(one, rank{r}));
      const epoch now = asked.epoch;
      const fibers::must_not_wait at_the_door;
      where_.entrance().accept(std::move(asked), ledger_.expect(one, std::nullopt, now));
    }
  }

  void ask_in(std::size_t lane, rank self) {
    for (const planned_request& one : of_.requests) {
      if (one.lane != lane) continue;
      const auto late = mix(of_.seed, one.number, static_cast<std::uint64_t>(self.value()));
      wait_until(began_ + one.at + nanoseconds{static_cast<nanoseconds::rep>(late) & 0xFFFFFFFFFFFF} % one.jitter);
      const epoch meant_for = epoch_of(one);
      epoch& silent = silent_until_[lane][static_cast<std::size_t>(self.value())];
      if (one.silent == self) silent = meant_for;
      if (silent >= meant_for) continue;
      const fibers::must_not_wait at_the_door;
      where_.rank_state(self).accept({.what = memory_.part_of(one, self, one.disagreeing == self),
                                      .epoch = meant_for,
                                      .deadline = one.deadline,
                                      .lane = name_of(lane)},
                                     ledger_.expect(one, self, meant_for), client_of(lane, self));
      if (one.cancelling == self) withdraw(lane, self);
    }
  }

  /// Whoever asks first for something decides which epoch it is for, so that all mean the same.
  epoch epoch_of(const planned_request& what) {
    const auto known = epochs_.find(what.number);
    if (known != epochs_.end()) return known->second;
    const world_event now = where_.latest();
    // Where the world is not ready, nobody may have it, also not those who come later.
    return epochs_[what.number] = now.phase == world_phase::ready ? now.epoch : epoch{0};
  }

  void raise(const planned_fault& one) {
    wait_until(began_ + one.at);
    switch (one.kind) {
      case fault_kind::device:
        faults_.count(one);
        on_.api->fail_next(device_of(one), {.code = errc::device_failed, .text = "the simulation says so"});
        break;
      case fault_kind::sticky:
        faults_.count(one);
        on_.api->fail_next(device_of(one), {.code = errc::process_poisoned, .text = "the simulation says so"});
        break;
      case fault_kind::ended_actor:
        faults_.count(one);
        where_.end_rank(one.where);
        break;
      case fault_kind::ended_client:
        faults_.count(one);
        withdraw(one.number % of_.lanes, one.where);
        break;
      case fault_kind::jump:
        faults_.count(one);
        fibers::current()->jump(one.span);
        break;
      default: break; // the communicators' own
    }
  }

  /// The client of \p self in \p lane is no more, or has left.
  void withdraw(std::size_t lane, rank self) {
    silent_until_[lane][static_cast<std::size_t>(self.value())] = where_.latest().epoch;
    where_.rank_state(self).forget(client_of(lane, self), {.code = errc::abandoned, .text = "the client has ended"});
  }

  [[nodiscard]] static device_id device_of(const planned_fault& one) { return device_id{one.where.value()}; }
  [[nodiscard]] static lane name_of(std::size_t lane) { return lane::named("simulated " + std::to_string(lane)); }
  [[nodiscard]] std::uint64_t client_of(std::size_t lane, rank self) const {
    return 1 + lane * static_cast<std::size_t>(of_.ranks) + static_cast<std::size_t>(self.value());
  }

  const scenario& of_;
  simulated_machine& on_;
  simulated_world& where_;
  const simulated_memory& memory_;
  simulation_ledger& ledger_;
  simulated_faults& faults_;
  time_point began_ = steady_now();
  std::map<std::size_t, epoch> epochs_;
  std::vector<std::vector<epoch>> silent_until_; ///< By lane, then by rank: it asks in later epochs alone.
  std::size_t busy_ = 0;
  std::vector<worker> cast_;
};

nanoseconds jumped(const scenario& of) {
  nanoseconds all{0};
  for (const planned_fault& one : of.faults)
    if (one.kind == fault_kind::jump) all += one.span;
  return all;
}

/// By when whatever was asked must have been answered, and a world that is told to stop have ended: everything that can
/// take long, one behind the other, for each rebuild.
nanoseconds longest(const scenario& of) {
  const auto& most = of.limits;
  nanoseconds all = most.hang + most.launch + most.drain + most.release + 400ms;
  for (std::size_t i = 0; i <= of.recovery.rebuilds; ++i) all += most.form + most.abort + of.recovery.backoff * 16;
  for (const planned_fault& one : of.faults) all += one.span;
  return all + 1s;
}

/// No run lasts as long as the window, unless its clock jumps.
void judge_rebuilds(const scenario& of, std::uint64_t last_epoch, simulation_ledger& ledger) {
  const bool jumps = std::ranges::any_of(of.faults, [](const auto& one) { return one.kind == fault_kind::jump; });
  const std::size_t most = of.recovery.policy == recovery_policy::fail_fast ? 0 : of.recovery.rebuilds;
  if (!jumps && last_epoch > 1 + most)
    ledger.wrong("the world has come to epoch " + std::to_string(last_epoch) + " with " + std::to_string(most) +
                 " rebuilds allowed (FLT-1)");
}

} // namespace

simulation_result simulate(const scenario& what, bool with_trace) {
  dice chance{mix(what.seed, 4)};
  fibers threads{[&](std::size_t count) { return chance.below(count); }};
  trace log{with_trace};
  simulation_result result;
  {
    const simulated_terms terms = terms_of(what);
    auto machine = std::make_unique<simulated_machine>(terms);
    simulated_memory memory{what, machine->devices};
    simulation_ledger ledger{what, memory, log};
    memory.on_release([&](std::size_t request, rank self) { ledger.released(request, self); });
    const auto faults = std::make_shared<simulated_faults>(what, ledger, log);
    {
      simulated_world where{terms, *machine, faults, log};
      play cast{what, *machine, where, memory, ledger, *faults};
      threads.run([&] { return cast.all_asked(); }, steady_now() + what.length + longest(what));
      if (!what.stops_busy) {
        // Whatever else happens, deadlines end every wait.
        threads.run([&] { return ledger.unanswered() == 0; }, steady_now() + jumped(what) + 1s);
        if (const std::size_t late = ledger.unanswered(); late > 0)
          ledger.stuck(std::to_string(late) + " requests were not answered in time");
      }
      log.note("stop");
      where.stop();
      threads.run([&] { return where.is_over() && ledger.unanswered() == 0; }, steady_now() + longest(what));
      if (!where.is_over()) ledger.stuck("the world has not ended: it is " + describe(where.latest()));
      result.last_epoch = where.latest().epoch.value();
    }
    if (threads.forbidden_waits() > 0)
      ledger.wrong("actors' turns waited " + std::to_string(threads.forbidden_waits()) + " times (BLK-1)");
    judge_rebuilds(what, result.last_epoch, ledger);
    result.found = ledger.judge();
    result.findings = ledger.findings();
    result.requests = ledger.asked();
    result.faults = faults->injected();
    machine = nullptr; // before what its last answers go to
    // Calls that hung for long return at last.
    threads.run([&] { return threads.living() == 0; }, steady_now() + longest(what));
  }
  result.trace = std::move(log.text());
  return result;
}

} // namespace troupe::simulation
