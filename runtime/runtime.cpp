#include <troupe/actors/control/caf_remote.hpp>
#include <troupe/actors/message_types.hpp>
#include <troupe/actors/world_actor.hpp>
#include <troupe/collectives/faults/faulty_backend.hpp>
#include <troupe/device/memory_pool.hpp>
#include <troupe/device/process_exit.hpp>
#include <troupe/device/unreturned.hpp>
#include <troupe/runtime/backend_selection.hpp>
#include <troupe/runtime/controller.hpp>
#include <troupe/runtime/local_device.hpp>
#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/membership.hpp>
#include <troupe/runtime/runtime.hpp>
#include <troupe/runtime/thread_plan.hpp>
#include <troupe/runtime/world_core.hpp>
#include <troupe/runtime/world_log.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {

namespace {

constexpr std::size_t slots_per_device = 256;

std::size_t worker_count(const configuration& settings) {
  if (settings.scheduler_threads > 0) return settings.scheduler_threads;
  return std::clamp<std::size_t>(std::thread::hardware_concurrency() / 8, 2, 4);
}

/// A foreign thread's message to a sleeping worker costs 50 µs and more, to a spinning one 2 µs; so workers are few
/// and, outside frugal, spin for a while like troupe's own threads. An actor gives way after each message: a world that
/// handled sixty requests in one turn launched the first 600 µs late. (docs/design/0003-threads.md)
std::unique_ptr<caf::actor_system_config> make_system_settings(const configuration& settings, latency_profile used,
                                                               const cpu_set& near) {
  register_message_types();
  auto made = std::make_unique<caf::actor_system_config>();
  compat::set_worker_count(*made, worker_count(settings));
  compat::set_messages_per_turn(*made, 1);
  compat::set_worker_nap(*made, std::chrono::milliseconds{20});
  if (!settings.control.address.empty()) compat::load_remote(*made);
  switch (used) {
    case latency_profile::latency: compat::set_worker_spin(*made, std::chrono::seconds{50}); break;
    case latency_profile::balanced: compat::set_worker_spin(*made, std::chrono::milliseconds{200}); break;
    case latency_profile::frugal: break;
  }
  compat::on_thread_start(*made, [near, is_to_spin = used != latency_profile::frugal] {
    if (!near.empty()) place_thread("actors", near);
    if (is_to_spin) compat::end_waits_in_time();
  });
  return made;
}

/// So that worlds of several processes that fail together do not come back in step.
std::uint64_t draw_seed() {
  std::random_device entropy;
  return (std::uint64_t{entropy()} << 32U) | entropy();
}

/// What a recovery begins with must be there; \p able says so before it is needed.
void require_rung(const recovery_terms& terms, const capabilities& able) {
  if (terms.policy == recovery_policy::fail_fast) return;
  const auto require = [&](recovery_rung rung, feature needed) {
    if (terms.first_rung != rung) return;
    const feature_finding found = able.find(needed);
    if (found.available != availability::no) return;
    throw exception{errc::unsupported, "recovery.first_rung is " + std::string{to_string(rung)} + ", and " +
                                           able.version + " cannot do that: " + found.why +
                                           "; let it be form_beside, which every version can"};
  };
  require(recovery_rung::shrink, feature::shrink);
  require(recovery_rung::revoke, feature::revoke);
}

/// What the first communicator of a process takes longest for, so that a spare has it behind it. What goes wrong shows
/// when it matters.
void rehearse(backend& collectives, const std::shared_ptr<device>& on) {
  try {
    const auto alone = collectives.create(collectives.make_unique_id(), rank{0}, 1, on);
    alone->init();
    alone->destroy();
  } catch (const exception& failure) {
    log_warning("a spare could not be made warm: " + std::string{failure.what()});
  }
}

} // namespace

/// Ended in the order of DESIGN §5: clients' gate and actors (a world's stop), launchers, poller, helpers, system; by
/// the runtime's end or the process's, whichever comes first.
class runtime::parts final : public ends_with_process {
public:
  explicit parts(configuration wanted)
    : settings{std::move(wanted)},
      selected{select_backend(settings)},
      wait{choose_wait(settings.profile, spinner_count(), std::thread::hardware_concurrency())},
      threads{place_threads()},
      system_settings{make_system_settings(settings, wait.used, threads.poller)},
      system{std::make_unique<caf::actor_system>(*system_settings)},
      helpers{std::make_shared<helper_crew>()} {
    if (wait.used != settings.profile)
      log_info(std::to_string(spinner_count()) + " spinning threads do not fit this machine's cores: profile frugal " +
               "instead of " + std::string{to_string(settings.profile)});
    services = {.time = std::make_shared<monotonic_clock>(),
                .poller = std::make_shared<poller>(std::make_shared<monotonic_clock>(), wait.wait,
                                                   [api = selected.api, near = threads.poller] {
                                                     begin_thread("troupe/poll", near);
                                                     api->enter_thread(std::nullopt);
                                                   }),
                .strategy = settings.strategy,
                .limits = settings.limits,
                .staging = std::make_shared<staging_stock>(settings.host_staging),
                .observer = observer_of(settings.faults)};
    above = std::make_shared<arbiter>(services.time, services.poller, settings.sequencing, settings.fusion);
    services.poller->attach(above);
    services.poller->start();
  }

  void end() noexcept override {
    const std::lock_guard lock{guard};
    if (std::exchange(ended, true)) return;
    return_or_report("a runtime's worlds", [&] {
      for (const auto& one : worlds->all()) return_or_report("a world", [&] { world{one}.stop(); });
    });
    member.reset();
    hosted.reset();
    launchers.clear();
    services.poller->stop();
    helpers->stop(); // its reports are messages, and the actor system ends next
  }

  ~parts() override {
    end();
    for (const auto& one : worlds->all()) {
      // Handles to actors must not outlive the actor system, and a user's world handle may outlive this runtime.
      one->actor = world_handle{};
      one->ranks->clear();
      const std::lock_guard lock{one->registered_guard};
      one->registered.reset();
    }
    if (process_is_ending()) leave_system();
  }

  /// It uses static objects of CAF's, which may be gone.
  void leave_system() {
    static auto* const left =
        new std::vector<std::pair<std::unique_ptr<caf::actor_system>, std::unique_ptr<caf::actor_system_config>>>;
    left->emplace_back(std::move(system), std::move(system_settings));
  }

  [[nodiscard]] bool is_controlled() const { return !settings.control.address.empty(); }
  [[nodiscard]] bool spans_processes() const {
    return is_controlled() || (settings.position && settings.position->world_size > 1);
  }
  [[nodiscard]] device_id device_of_first_rank() const {
    if (is_controlled() && settings.seat.device)
      return choose_local_device({.local_rank = *settings.seat.device}, selected.api->device_count());
    const bool counts = settings.position && (is_controlled() || settings.position->world_size > 1);
    return counts ? choose_local_device(*settings.position, selected.api->device_count()) : device_id{0};
  }
  [[nodiscard]] int rank_count() const {
    if (spans_processes()) return 1;
    return settings.ranks > 0 ? settings.ranks : selected.api->device_count();
  }

  [[nodiscard]] std::string strategy_text() const {
    const auto used = choose_strategy(settings.strategy, *selected.api, device_of_first_rank());
    std::string text{to_string(used)};
    return settings.strategy == used ? text : text + " (" + std::string{to_string(settings.strategy)} + ')';
  }

  /// A launcher for each rank, the poller, and the actor system's workers.
  [[nodiscard]] std::size_t spinner_count() const {
    return static_cast<std::size_t>(rank_count()) + 1 + worker_count(settings);
  }

  [[nodiscard]] thread_plan place_threads() const {
    if (settings.placement == thread_placement::anywhere) return {};
    std::vector<device_id> in_use;
    for (int i = 0; i < rank_count(); ++i) in_use.emplace_back(device_of_first_rank().value() + i);
    return plan_threads(*selected.api, in_use, wait.used != latency_profile::frugal);
  }

  /// Opens what rank \p self needs on first use.
  [[nodiscard]] local_rank make_local(rank self, device_id where) {
    if (ended) throw exception{errc::stopping, "the process is ending: no world can be formed any more"};
    auto& opened = devices[where];
    if (!opened) opened = device::open(selected.api, where);
    auto& pool = pools[where];
    if (!pool) {
      pool = memory_pool::create(opened);
      if (settings.pool_reserve_bytes > 0) pool->reserve(settings.pool_reserve_bytes);
      services.staging->add(pool);
    }
    if (!services.slots)
      services.slots = std::make_shared<slot_table>(opened, slots_per_device *
                                                                static_cast<std::size_t>(selected.api->device_count()));
    auto& hand = launchers[where];
    if (!hand)
      hand = std::make_shared<launcher>(
          opened, wait.wait, settings.limits.check_interval, std::chrono::seconds{5},
          [where, near = threads.launcher_of(where)] { begin_thread("troupe/gpu" + to_string(where), near); });
    return {self, opened, hand};
  }

  /// Of one world at a time: the way to its controller, which the process of rank 0 hosts where nobody else does.
  [[nodiscard]] std::shared_ptr<world_guide> join(device_id where) {
    if (member)
      throw exception{errc::invalid_argument, "this runtime has joined its controller's world already: it holds one "
                                              "rank of it, and another world is split off that one"};
    member = std::make_unique<membership>(describe_process(settings, *selected.api, *selected.collectives, where),
                                          settings, helpers, selected, services.time);
    return member->guide();
  }

  configuration settings;
  selected_backend selected;
  chosen_wait wait;
  thread_plan threads;
  std::unique_ptr<caf::actor_system_config> system_settings;
  std::unique_ptr<caf::actor_system> system;
  std::shared_ptr<helper_crew> helpers;
  pipeline_services services;
  std::shared_ptr<arbiter> above;
  std::mutex guard; ///< Of all below.
  bool ended = false;
  std::map<device_id, std::shared_ptr<device>> devices;
  std::map<device_id, std::shared_ptr<memory_pool>> pools;
  std::map<device_id, std::shared_ptr<launcher>> launchers;
  std::unique_ptr<controller> hosted; ///< Where this is the process that has rank 0, and nobody else has one.
  std::unique_ptr<membership> member; ///< Of the world that spans processes.
  std::shared_ptr<world_registry> worlds = std::make_shared<world_registry>();
};

runtime::runtime(configuration settings) {
  check(settings);
  open_log(settings.log_level);
  on_unreturned([](const error& why) { log_warning(to_string(why)); });
  parts_ = std::make_shared<parts>(std::move(settings));
  end_with_process(parts_);
  log_info(describe() + " (" + parts_->selected.why + ")");
}

runtime::~runtime() = default;

world runtime::form_world(const world_options& options) {
  parts& p = *parts_;
  const auto& position = p.settings.position;
  const bool spans_processes = p.spans_processes();
  const bool is_guided = p.is_controlled() && !options.id;
  if (spans_processes && !is_guided && !options.id)
    throw exception{errc::invalid_argument,
                    std::string{names_for(position->launcher).world_size} + " is " +
                        std::to_string(position->world_size) +
                        ": a world over several processes needs a controller (control.address), or one unique id for "
                        "all of them; make it in rank 0 with runtime::make_unique_id(), hand it to the others over a "
                        "channel of your own, and pass it to form_world() as world_options::id; or start this process "
                        "alone for a world of its own"};
  const int count = p.rank_count();
  const int devices = p.selected.api->device_count();
  if (!spans_processes && count > devices)
    throw exception{errc::invalid_argument, "ranks is " + std::to_string(count) + ", but the " +
                                                std::string{p.selected.api->name()} + " driver has " +
                                                std::to_string(devices) + " devices: one rank needs one device"};

  world_plan plan{.world_size = position && spans_processes ? position->world_size : count,
                  .id = options.id,
                  .backend = p.selected.collectives,
                  .helpers = p.helpers,
                  .board = std::make_shared<world_board>(),
                  .above = p.above,
                  .ordering = p.settings.ordering,
                  .deadlines = p.settings.deadlines,
                  .recovery = options.id ? recovery_terms{} : p.settings.recovery, // an id names one forming
                  .seed = draw_seed(),
                  .pending = std::make_shared<pending_work>(p.settings.pending, p.services.poller)};
  auto shared = std::make_shared<world::core>();
  std::shared_ptr<device> first_device;
  {
    const std::lock_guard lock{p.guard};
    for (int i = 0; i < count; ++i) {
      const rank self{position && spans_processes ? position->rank : i};
      const device_id where{p.device_of_first_rank().value() + i};
      plan.locals.push_back(p.make_local(self, where));
      shared->local_ranks.push_back(self);
      shared->pools.push_back(p.pools[where]);
    }
    plan.services = p.services;
    std::vector<std::shared_ptr<device>> used;
    for (const local_rank& one : plan.locals) used.push_back(one.where);
    plan.services.able = std::make_shared<const capabilities>(p.selected.collectives->examine(used));
    shared->able = plan.services.able;
    require_rung(plan.recovery, *shared->able);
    plan.services.strategy = options.strategy.value_or(p.settings.strategy);
  }
  if (is_guided) {
    plan.recovery = {.policy = recovery_policy::guided};
    plan.guide = p.join(plan.locals.front().where->id());
    first_device = plan.locals.front().where;
  }
  shared->retries = plan.retries = make_retry_shelf(plan);
  shared->board = plan.board;
  shared->deadlines = plan.deadlines;
  shared->pending = plan.pending;
  shared->registry = p.worlds;
  shared->staging = p.services.staging;
  plan.board->listen(make_world_log(p.settings.report_folder, p.helpers));
  auto spawned = spawn_world(*p.system, std::move(plan));
  if (is_guided && p.settings.seat.spare) rehearse(*p.selected.collectives, first_device);
  if (is_guided) p.member->begin(*p.system, spawned.world);
  shared->actor = world_handle{spawned.world};
  shared->ranks = std::move(spawned.ranks);
  p.worlds->add(shared);

  const auto settled = [is_guided](const world_event& event) {
    return event.phase != world_phase::forming && !(is_guided && event.phase == world_phase::rebuilding);
  };
  // The world's own deadline ends the forming, or its controller's; this one is only a backstop. Who stands by for a
  // place waits for as long as nobody leaves one.
  const nanoseconds backstop = is_guided ? nanoseconds::max() : 2 * p.settings.deadlines.form;
  static_cast<void>(shared->board->wait(settled, backstop));
  const world_event now = shared->board->latest();
  end_with_process(parts_); // the driver's contexts and the backend's library have come since
  if (now.phase == world_phase::ready) {
    if (is_guided) shared->local_ranks = now.origins; // what the controller calls it
    return world{std::move(shared)};
  }
  error why{.code = errc::deadline_exceeded, .text = "the world did not form in time"};
  if (now.reason)
    why = now.reason;
  else if (is_guided)
    why = {.code = errc::stopping, .text = "the world has ended before this process was needed"};
  return_or_report("a world that failed to form", [&] { world{shared}.stop(); });
  if (is_guided) p.member.reset();
  throw exception{std::move(why)};
}

unique_id runtime::make_unique_id() {
  return parts_->selected.collectives->make_unique_id();
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
  return *parts_->selected.collectives;
}

std::string runtime::describe() const {
  const parts& p = *parts_;
  return std::string{p.selected.collectives->version()} + ", " + p.selected.api->version() + ", profile " +
         std::string{to_string(p.wait.used)} + ", completion by " + p.strategy_text() + ", threads " +
         std::string{to_string(p.settings.placement)};
}

} // namespace troupe
