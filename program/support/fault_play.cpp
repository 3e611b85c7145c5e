#include <troupe/completion/poller/clock.hpp>
#include <troupe/program/support/fault_play.hpp>
#include <troupe/program/support/fault_traffic.hpp>

#include <troupe/runtime/runtime.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>

namespace troupe::program {

namespace {

using namespace std::chrono_literals;

double in_milliseconds(nanoseconds span) {
  return std::chrono::duration<double, std::milli>(span).count();
}

bool has_ended(const world_event& event) {
  return event.phase == world_phase::failed || event.phase == world_phase::stopped;
}

class play {
public:
  play(const fault_scene& scene, fault_traffic& traffic, event_history& log, const fault_patience& patience)
    : scene_{scene},
      traffic_{traffic},
      log_{log},
      patience_{patience},
      before_{scene.where.epoch()},
      ranks_before_{scene.where.local_ranks().size()} {
    log_.clear();
    traffic_.begin();
    static_cast<void>(scene_.faults.take_ended_aborts());
  }

  played_fault run(const fault_kind& kind) {
    // The fault is raised while requests are in flight.
    if (!traffic_.await([](const seen_reply& one) { return one.code == errc::none; }, patience_.at_most)) {
      result_.hung = true;
      return result_;
    }
    raised_fault raised = kind.raise(scene_);
    const time_point raised_by =
        monotonic_clock{}.now(); // A fault that concerns only its own request has ended by now.
    if (raised.happened.wait_for(patience_.at_most) != std::future_status::ready) {
      result_.hung = true;
      return result_;
    }
    result_.raised = raised.happened.get();
    const bool from_world = kind.leads_to != fault_consequence::stays_ready;
    if (from_world)
      await_recovery();
    else
      result_.detected = raised_by;
    if (!result_.hung && !has_ended(scene_.where.status())) see_service(from_world);
    if (!result_.hung) see_restoration();
    see_aborts();
    if (raised.request.valid() && raised.request.wait_for(patience_.at_most) != std::future_status::ready)
      result_.hung = true;
    gather(from_world);
    if (has_ended(scene_.where.status())) see_answers();
    result_.as_expected =
        !result_.hung && (kind.leads_to == fault_consequence::world_ends
                              ? scene_.where.status().phase == world_phase::failed && result_.answered.has_value()
                              : result_.recovered);
    return result_;
  }

private:
  void await_recovery() {
    const auto over = log_.await(
        [this](const world_event& one) {
          return has_ended(one) || (one.phase == world_phase::ready && one.epoch > before_);
        },
        patience_.at_most);
    result_.hung = !over;
  }

  void see_service(bool in_later_epoch) {
    const auto good = traffic_.await(
        [&](const seen_reply& one) {
          return one.code == errc::none && (in_later_epoch ? one.epoch > before_ : one.asked > *result_.detected);
        },
        patience_.at_most);
    result_.hung = !good;
    if (!good) return;
    result_.first_good = good->replied;
    epoch ready_in = before_; // Only the first ready event of an epoch counts: later ones may report something else.
    for (const logged_event& one : log_.all())
      if (one.event.phase == world_phase::ready && one.event.epoch > ready_in && one.event.epoch <= good->epoch) {
        ready_in = one.event.epoch;
        result_.ready = one.at;
      }
    const time_point from = result_.ready.value_or(*result_.detected);
    time_point until = from + patience_.watch;
    std::this_thread::sleep_until(until);
    // On a busy machine no client may ask within that time. The first request after it then counts.
    const auto first = traffic_.await([&](const seen_reply& one) { return one.asked >= from; }, patience_.at_most);
    result_.hung = !first;
    if (!first) return;
    until = std::max(until, first->asked + nanoseconds{1});
    for (const seen_reply& one : traffic_.replies())
      if (one.asked >= from && one.asked < until) {
        if (one.code == errc::none)
          result_.watched_ms.push_back(in_milliseconds(one.replied - one.asked));
        else
          ++result_.failed_while_watched;
      }
    result_.recovered = scene_.where.status().phase == world_phase::ready;
  }

  /// Waits until each resource that the world restores is back or lost.
  void see_restoration() {
    const auto has_ended_all = [](const restoration& all) {
      return std::ranges::none_of(all, [](const restored_part& one) { return one.state == restored_state::under_way; });
    };
    const world_event now = scene_.where.status();
    if (!now.restored || has_ended_all(*now.restored)) return;
    const auto over = log_.await(
        [&](const world_event& one) {
          return has_ended(one) || (one.epoch >= now.epoch && one.restored && has_ended_all(*one.restored));
        },
        patience_.at_most);
    result_.hung = !over;
  }

  /// Waits until each client has received an error for a request after the fault. Then no earlier request is pending.
  void see_answers() {
    const auto failed_later =
        traffic_.await([&](const seen_reply& one) { return one.asked > *result_.detected && one.code != errc::none; },
                       patience_.at_most);
    if (!failed_later) return void(result_.hung = true);
    for (const seen_reply& one : traffic_.replies())
      if (one.asked <= *result_.detected)
        result_.answered = std::max(result_.answered.value_or(one.replied), one.replied);
  }

  /// Counts the communicators of ended epochs: one per rank, or none for a single rank.
  [[nodiscard]] std::size_t communicators_to_abort() const {
    const world_event now = scene_.where.status();
    std::map<epoch, std::size_t> sizes{{before_, ranks_before_}};
    for (const logged_event& one : log_.all())
      if (one.event.epoch > before_) sizes[one.event.epoch] = one.event.local_ranks.size();
    if (!has_ended(now)) sizes.erase(now.epoch);
    std::size_t sum = 0;
    for (const auto& [which, size] : sizes) sum += size > 1 ? size : 0;
    return sum;
  }

  void see_aborts() {
    const std::size_t wanted = communicators_to_abort();
    const time_point until = later(monotonic_clock{}.now(), patience_.at_most);
    std::size_t seen = 0;
    for (;;) {
      for (const testing::ended_abort& one : scene_.faults.take_ended_aborts()) {
        result_.aborted = one.at;
        ++seen;
      }
      if (seen >= wanted) break;
      if (monotonic_clock{}.now() >= until) {
        result_.hung = true;
        break;
      }
      std::this_thread::sleep_for(1ms);
    }
    scene_.faults.release(); // Faults that did not occur must not affect the next fault.
  }

  void gather(bool from_world) {
    result_.unkept = traffic_.unkept();
    for (logged_event& one : log_.all())
      if (one.at >= *result_.raised) result_.events.push_back(std::move(one));
    if (!from_world) return;
    const auto hear = [this](time_point at) {
      if (at >= *result_.raised && (!result_.detected || at < *result_.detected)) result_.detected = at;
    };
    for (const logged_event& one : result_.events) {
      if (one.event.restored) result_.restored = one.event.restored;
      if (one.event.phase == world_phase::rebuilding || one.event.phase == world_phase::failed) {
        hear(one.at);
        if (!result_.reason) result_.reason = one.event.reason;
      }
    }
    for (const seen_reply& one : traffic_.replies())
      if (one.code != errc::none) hear(one.replied);
    if (const auto first = traffic_.first_failure(); first && !result_.reason) result_.reason = *first;
  }

  const fault_scene& scene_;
  fault_traffic& traffic_;
  event_history& log_;
  const fault_patience& patience_;
  const epoch before_;
  const std::size_t ranks_before_;
  played_fault result_;
};

} // namespace

played_fault play_fault(const fault_kind& kind, const fault_scene& scene, fault_traffic& traffic, event_history& log,
                        const fault_patience& patience) {
  return play{scene, traffic, log, patience}.run(kind);
}

void event_history::record::add(const world_event& event) {
  const time_point now = monotonic_clock{}.now();
  {
    const std::lock_guard lock{mutex};
    all.push_back({now, event});
  }
  changed.notify_all();
}

void event_history::record::clear() {
  const std::lock_guard lock{mutex};
  all.clear();
}

std::vector<logged_event> event_history::all() const {
  const std::lock_guard lock{events_->mutex};
  return events_->all;
}

std::optional<logged_event> event_history::await(const std::function<bool(const world_event&)>& wanted,
                                                 nanoseconds at_most) const {
  std::optional<logged_event> found;
  std::unique_lock lock{events_->mutex};
  events_->changed.wait_for(lock, at_most, [&] {
    const auto& all = events_->all;
    const auto first = std::ranges::find_if(all, [&](const logged_event& one) { return wanted(one.event); });
    if (first != all.end()) found = *first;
    return found.has_value();
  });
  return found;
}

using namespace std::chrono_literals;

configuration fault_settings(const gathered_settings& asked, std::shared_ptr<fault_injector> faults, bool hangs_soon) {
  const auto is_open = [&](std::string_view name) {
    return asked.origin(find_setting(name)).source == setting_source::standard;
  };
  configuration settings = asked.settings();
  if (is_open("recovery.policy"))
    settings.recovery.policy =
        settings.recovery.first_rung == recovery_rung::shrink ? recovery_policy::shrink : recovery_policy::keep_size;
  if (settings.recovery.policy == recovery_policy::fail_fast)
    throw exception{errc::invalid_argument,
                    "with recovery.policy = fail_fast no world recovers: choose another policy"};
  if (is_open("recovery.rebuilds")) {
    settings.recovery.rebuilds = 1'000'000;
    if (is_open("recovery.window")) settings.recovery.window = std::chrono::years{5}; // Allows that many failures.
  }
  if (is_open("recovery.backoff")) settings.recovery.backoff = nanoseconds{0};
  if (hangs_soon && is_open("limits.hang")) settings.limits.hang = 100ms;
  if (is_open("deadlines.form")) settings.deadlines.form = 3s;
  if (is_open("log_level")) settings.log_level = "error"; // Raised faults are expected.
  settings.faults = std::move(faults);
  check(settings);
  return settings;
}

void require_peers(const world& where) {
  if (where.size() < 2)
    throw exception{errc::invalid_argument,
                    "a world of " + std::to_string(where.size()) +
                        " rank has no communicator in which a fault could occur: raise --ranks"};
}

void load_kernels(const gathered_settings& asked) {
  constexpr nanoseconds patience = 60s;
  configuration settings = asked.settings();
  settings.recovery = {}; // The recovery settings may be valid only with those of fault_settings().
  runtime rt{settings};
  world where = rt.form_world();
  fault_traffic traffic{where, {.patience = patience}};
  if (!traffic.await([](const seen_reply& one) { return one.code == errc::none; }, patience)) {
    const auto why = traffic.first_failure();
    throw why ? exception{*why} : exception{errc::deadline_exceeded, "the first operations were not answered"};
  }
  traffic.stop();
  where.stop();
}

} // namespace troupe::program
