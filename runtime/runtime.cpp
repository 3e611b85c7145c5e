#include <troupe/actors/world/world_actor.hpp>
#include <troupe/device/keep_for_good.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/threads/own_thread.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/recording/world_log.hpp>
#include <troupe/runtime/runtime_parts.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// Longest time after deadlines.form in which a controller that this process has joined can say why the world has not
/// formed.
constexpr std::chrono::seconds time_for_verdict{2};

/// Time limit of the warm-up of a process that has become a spare. The end of the runtime may wait for it.
constexpr std::chrono::seconds longest_rehearsal{10};

/// Returns a random seed, so that processes whose worlds fail together do not all retry at the same moments.
std::uint64_t draw_seed() {
  std::random_device entropy;
  return (std::uint64_t{entropy()} << 32U) | entropy();
}

/// Checks that the feature of the first recovery rung is available, before it is needed.
void require_rung(const recovery_terms& terms, const capabilities& able) {
  if (terms.policy == recovery_policy::fail_fast) return;
  const auto require = [&](recovery_rung rung, feature needed) {
    if (terms.first_rung != rung) return;
    const feature_finding found = able.find(needed);
    if (found.available != availability::no) return;
    throw exception{errc::unsupported, "recovery.first_rung is " + std::string{to_string(rung)} + ", and " +
                                           able.version + " cannot do that: " + found.why +
                                           "; set it to form_beside, which every version supports"};
  };
  require(recovery_rung::shrink, feature::shrink);
  require(recovery_rung::revoke, feature::revoke);
}

/// Forms and destroys a communicator of one rank, because the first communicator of a process takes longest. Spares do
/// this in advance. A failure is only logged here: it is reported when the spare is needed.
void rehearse(backend& collectives, const std::shared_ptr<device>& on) {
  try {
    const auto alone = collectives.create(collectives.make_unique_id(), rank{0}, 1, on);
    alone->init();
    alone->destroy();
  } catch (const exception& failure) {
    log_warning("a spare could not be warmed up: " + std::string{failure.what()});
  }
}

} // namespace

runtime::runtime(configuration settings) {
  begin(std::move(settings), nullptr);
}

runtime::runtime(caf::actor_system& host, configuration settings) {
  begin(std::move(settings), &host);
}

void runtime::begin(configuration settings, caf::actor_system* host) {
  check(settings);
  open_log(settings.log_level);
  on_leak([](const error& why) { log_warning(to_string(why)); });
  parts_ = std::make_shared<parts>(std::move(settings), host);
  end_with_process(parts_);
  log_info(describe() + " (" + parts_->selected.why + ")");
}

void runtime::end(std::shared_ptr<parts> all) noexcept {
  if (!all->is_inherited()) {
    all->end();
    // The calls that end() has made return still use the parts and the actor system.
    if (all->await_formings()) return;
    report_leak({.code = errc::deadline_exceeded,
                 .text = "a thread has not returned from form_world(): the runtime's resources are not released"});
  }
  keep_for_good(std::move(all));
}

runtime::~runtime() {
  if (!is_own_thread()) {
    end(std::move(parts_));
    return;
  }
  return_or_report("a runtime that ends on a thread of its own", [this] { // which cannot wait for itself
    std::thread{[all = parts_] { end(all); }}.detach();
  });
}

world runtime::form_world(const world_options& options) {
  parts& p = *parts_;
  const parts::forming_call in_progress{p}; // before all that uses the parts: another thread may destroy this object
  const auto& position = p.settings.position;
  const bool spans_processes = p.spans_processes();
  const bool has_controller = p.is_controlled() && !options.id;
  if (spans_processes && !has_controller && !options.id)
    throw exception{errc::invalid_argument,
                    std::string{names_for(position->launcher).world_size} + " is " +
                        std::to_string(position->world_size) +
                        ": a world over several processes needs a controller: start one (troupe controller -n " +
                        std::to_string(position->world_size) +
                        ", with a secret in TROUPE_JOIN_TOKEN), and give its TROUPE_CONTROL and that token to all "
                        "processes. Or use one unique id for all of them: make it in rank 0 with "
                        "runtime::make_unique_id(), send it to the others over your own channel, and pass it to "
                        "form_world() as world_options::id. Or start this process alone for a world of its own"};
  const std::vector<device_id> devices = p.devices_for(options.devices);
  const int count = static_cast<int>(devices.size());

  p.worlds->await_ends();
  // Reserves helpers for aborting and forming all ranks at the same time, and for records, captures and the rehearsal
  // of a spare meanwhile.
  p.helpers->reserve(2 * static_cast<std::size_t>(count) + 3);

  const std::uint64_t seed = draw_seed();
  auto pending = std::make_shared<admission_quota>(p.settings.limits.pending, p.services.poller);
  world_plan plan{.world_size = position && spans_processes ? position->world_size : count,
                  .id = options.id,
                  .backend = p.selected.collectives,
                  .helpers = p.helpers,
                  .status = std::make_shared<world_status>(),
                  .above = p.above,
                  .ordering = p.settings.ordering,
                  .deadlines = p.settings.deadlines,
                  // An id is valid for one formation, so the world cannot form again.
                  .recovery = options.id ? recovery_terms{.policy = recovery_policy::fail_fast} : p.settings.recovery,
                  .seed = seed,
                  .pending = std::move(pending)};
  auto shared = std::make_shared<world::core>();
  shared->functions = plan.functions = std::make_shared<function_directory>();
  plan.status->listen([uses = shared->uses](const world_event& event) {
    if (event.phase == world_phase::stopped) uses->end();
  });
  shared->exported = plan.exported = std::make_shared<exported_memory>(draw_seed() | 1U);
  std::shared_ptr<device> first_device;
  {
    const std::lock_guard lock{p.mutex};
    p.claim(devices);
    for (int i = 0; i < count; ++i) {
      const rank self{position && spans_processes ? position->rank : i};
      const device_id where = devices[static_cast<std::size_t>(i)];
      plan.locals.push_back(p.make_local(self, where, *shared->uses));
      shared->local_ranks.push_back(self);
      shared->pools.push_back(p.pools[where]);
      if (i == 0) plan.lend = p.lender(p.pools[where]);
    }
    plan.services = p.services;
    std::vector<std::shared_ptr<device>> used;
    for (const local_rank& one : plan.locals) used.push_back(one.where);
    plan.services.able = std::make_shared<const capabilities>(p.selected.collectives->examine(used));
    shared->able = plan.services.able;
    require_rung(plan.recovery, *shared->able);
    plan.services.strategy = p.strategy(options.strategy.value_or(p.settings.strategy));
  }
  std::shared_ptr<membership> member;
  if (has_controller) {
    first_device = plan.locals.front().where;
    std::function<void()> stands_by;
    // A process that was started again learns only when it joins whether a spare has its place. If none has, the world
    // waits for it, so it does not warm up before.
    if (!p.settings.control.assignment.spare)
      stands_by = [helpers = p.helpers, collectives = p.selected.collectives, on = first_device] {
        helpers->run(
            "the rehearsal of a spare", longest_rehearsal, [collectives, on] { rehearse(*collectives, on); },
            [](const error& failure) {
              if (failure) log_warning(to_string(failure));
            });
      };
    member = p.join(first_device->id(), std::move(stands_by));
    plan.to_controller = member->channel();
    plan.services.lease = member->lease();
  }
  shared->status = plan.status;
  shared->deadlines = plan.deadlines;
  shared->ordering = plan.ordering;
  shared->pending = plan.pending;
  shared->registry = p.worlds;
  shared->staging = p.services.staging;
  shared->count_events();
  plan.status->listen(make_world_log(p.settings.report_folder, p.helpers, {p.services.recorder, p.versions()}));
  auto spawned = spawn_world(*p.system, std::move(plan));
  compat::release_logger();
  if (has_controller && p.settings.control.assignment.spare) rehearse(*p.selected.collectives, first_device);
  shared->actor = spawned.world;
  shared->ranks = std::move(spawned.ranks);
  bool has_ended = false;
  {
    const std::lock_guard lock{p.mutex}; // end() stops the worlds that it finds
    has_ended = p.ended;
    p.worlds->add(shared);
    if (has_controller && !has_ended) member->begin(spawned.world);
  }
  if (has_ended) {
    return_or_report("a world of a runtime that has ended", [&] { world{shared}.stop(); });
    throw exception{errc::stopping, "the runtime has ended while it formed the world"};
  }

  // A world that has had a fault at once forms again.
  const auto settled = [](const world_event& event) {
    return event.phase != world_phase::forming && event.phase != world_phase::rebuilding;
  };
  // Without a controller the forming has a deadline of the world, and this one is only a backstop.
  const nanoseconds limit = p.settings.deadlines.form;
  std::optional<std::stop_callback<std::function<void()>>> on_stop;
  on_stop.emplace(options.stop, [world = shared->actor] { compat::post(world, stop_world{}); });
  world_event now = shared->status->wait(settled, has_controller ? limit : 2 * limit);
  if (!settled(now) && has_controller) {
    // A spare waits until a place becomes free, without a limit. The controller, whose own limit for other processes
    // has the same default, can name those that are missing.
    const bool stands_by = p.settings.control.assignment.spare || member->is_spare();
    if (stands_by || member->is_joined())
      now = shared->status->wait(settled,
                                 stands_by ? nanoseconds::max() : std::min<nanoseconds>(time_for_verdict, limit / 16));
  }
  on_stop.reset();
  const bool is_abandoned = options.stop.stop_requested(); // maybe just after the world was ready
  // Registers again: the driver's contexts and the backend's library have been loaded since the first call.
  end_with_process(parts_);
  if (now.phase == world_phase::ready && !is_abandoned) {
    if (has_controller) shared->local_ranks = now.origins; // the ranks that the controller assigned
    return world{spans_processes ? std::move(shared) : p.worlds->counted(std::move(shared))};
  }
  error why{.code = errc::deadline_exceeded,
            .text = "the world did not form within " + format_duration(limit) + " (deadlines.form)" +
                    (has_controller ? ": " + member->awaited() : std::string{})};
  if (is_abandoned)
    why = {.code = errc::stopping, .text = "a stop was requested while the world formed (world_options::stop)"};
  else if (now.reason && (settled(now) || !has_controller))
    why = now.reason;
  else if (settled(now) && has_controller)
    why = {.code = errc::stopping, .text = "the world has ended before this process was needed"};
  return_or_report("a world that failed to form", [&] { world{shared}.stop(); });
  if (has_controller) {
    const std::lock_guard lock{p.mutex};
    p.member.reset(); // `member` leaves the world when it is destroyed, without the lock
  }
  throw exception{std::move(why)};
}

std::future<world> runtime::form_world_async(world_options options) {
  std::promise<world> promise;
  auto formed = promise.get_future();
  // Counted before the thread begins, because this object may be destroyed before that.
  std::thread{[this, in_progress = std::make_shared<const parts::forming_call>(*parts_), promise = std::move(promise),
               options = std::move(options)]() mutable {
    try {
      promise.set_value(form_world(options));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
    promise = {}; // the world, if nobody wants it, before the runtime's end may continue
  }}.detach();
  return formed;
}

unique_id runtime::make_unique_id() {
  return parts_->selected.collectives->make_unique_id();
}

std::size_t runtime::release_unused() {
  std::size_t released_bytes = 0;
  for (const auto& pool : parts_->services.staging->pools()) released_bytes += pool->release_unused();
  return released_bytes + parts_->selected.api->return_pinned();
}

std::string runtime::write_flight_record(const std::optional<std::string>& file) const {
  return parts_->write_record(file, "asked for").string();
}

caf::actor_system& runtime::system() noexcept {
  return *parts_->system;
}

const configuration& runtime::settings() const noexcept {
  return parts_->settings;
}

driver& runtime::api() noexcept {
  return *parts_->selected.api;
}

backend& runtime::collectives() noexcept {
  return *parts_->selected.library;
}

std::shared_ptr<const metrics_source> runtime::metrics() const noexcept {
  return parts_->metrics;
}

std::string runtime::metrics_address() const {
  return parts_->endpoint ? to_string(parts_->endpoint->where()) : std::string{};
}

std::string runtime::describe() const {
  const parts& p = *parts_;
  return "collectives: " + p.selected.collectives->version() + "; devices: " + p.selected.api->version() +
         "; profile " + std::string{to_string(p.wait.used)} + ", completion by " + p.strategy_text() + ", threads " +
         std::string{to_string(p.settings.placement)} +
         (p.endpoint ? ", metrics at http://" + to_string(p.endpoint->where()) + "/metrics" : std::string{});
}

} // namespace troupe
