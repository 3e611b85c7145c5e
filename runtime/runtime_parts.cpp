#include <troupe/actors/world/request_gate.hpp>
#include <troupe/collectives/backend/faults/fault_injector.hpp>
#include <troupe/collectives/backend/nccl/nvtx_ranges.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/runtime/interop/host_system.hpp>
#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/packages.hpp>
#include <troupe/runtime/placement/backend_selection.hpp>
#include <troupe/runtime/placement/device_claim.hpp>
#include <troupe/runtime/recording/flight_record.hpp>
#include <troupe/runtime/runtime_parts.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {

namespace {

constexpr std::size_t slots_per_device = 256;

/// Returns the observer of launches, or null if neither faults are injected nor NVTX ranges are on.
std::shared_ptr<launch_observer> observer_for(const configuration& settings) {
  auto faults = observer_of(settings.faults);
  const bool is_marked =
      settings.nvtx == nvtx_choice::on || (settings.nvtx == nvtx_choice::automatic && nvtx_is_heard());
  auto ranges = is_marked ? make_nvtx_ranges() : nullptr;
  if (settings.nvtx == nvtx_choice::on && !ranges)
    throw exception{errc::unsupported, "nvtx is on, but this troupe was built without CUDA's headers: build it where "
                                       "the toolkit is installed, or set nvtx to auto"};
  if (!faults) return ranges;
  return ranges ? std::make_shared<launch_observers>(std::move(faults), std::move(ranges)) : faults;
}

/// Returns the settings of the actor system. A message from a foreign thread costs 50 µs and more if the worker sleeps,
/// and 2 µs if it spins. Workers are therefore few and, except with `frugal`, spin for a while like troupe's own
/// threads. An actor yields after each message: a world that handled sixty requests in one turn launched the first 600
/// µs late. (docs/design/0003-threads.md)
std::unique_ptr<caf::actor_system_config> make_system_settings(const configuration& settings, latency_profile used,
                                                               const cpu_set& near) {
  register_message_types();
  auto made = std::make_unique<caf::actor_system_config>();
  compat::set_worker_count(*made, worker_count(settings));
  compat::set_messages_per_turn(*made, 1);
  compat::set_worker_nap(*made, std::chrono::milliseconds{20});
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

/// Checks that a program's own actor system knows troupe's messages and runs its actors. Errors: invalid_argument.
void require_prepared_host(caf::actor_system& host) {
  if (compat::is_stepped(host))
    throw exception{errc::invalid_argument,
                    "the actor system is stepped by a test (CAF's test_coordinator or deterministic fixture), but a "
                    "runtime needs actors that run by themselves: use a testing::actor_world there"};
  if (!compat::knows_messages())
    throw exception{errc::invalid_argument, "the actor system was made before troupe's message types were registered: "
                                            "call troupe::prepare_host() with its configuration first"};
}

} // namespace

runtime::parts::parts(configuration wanted, caf::actor_system* host)
  : settings{std::move(wanted)},
    system{host},
    selected{select_backend(settings)},
    wait{choose_wait(settings.profile, spinner_count(), std::thread::hardware_concurrency())},
    threads{place_threads()},
    helpers{std::make_shared<deadline_pool>()} {
  if (system != nullptr) {
    require_prepared_host(*system);
    for (const std::string& one : host_shortcomings(system->config(), settings))
      log_warning("the client's actor system lacks a setting of troupe::prepare_host(): " + one);
  } else {
    own_system = std::make_unique<compat::own_actor_system>(make_system_settings(settings, wait.used, threads.poller),
                                                            settings.deadlines.drain);
    system = &own_system->get();
  }
  if (wait.used != settings.profile)
    log_info(std::to_string(spinner_count()) +
             " spinning threads do not fit this machine's cores: profile frugal is used " + "instead of " +
             std::string{to_string(settings.profile)});
  services = {.time = std::make_shared<monotonic_clock>(),
              .poller = std::make_shared<poller>(
                  std::make_shared<monotonic_clock>(), wait.wait,
                  [api = selected.api, near = threads.poller] {
                    begin_thread("troupe/poll", near);
                    api->enter_thread(std::nullopt);
                  },
                  counted_of_pause(settings.limits)),
              .strategy = strategy(settings.strategy),
              .limits = settings.limits,
              .staging = std::make_shared<staging_stock>(settings.host_staging),
              .observer = observer_for(settings),
              .recorder = settings.recorder.enabled ? std::make_shared<flight_recorder>(settings.recorder.requests)
                                                    : flight_recorder::silent(),
              .hangs = std::make_shared<hang_watch>(settings.deadlines.abort)};
  above = std::make_shared<arbiter>(services.time, services.poller, settings.limits.sequencing, settings.fusion);
  services.poller->attach(above);
  if (!settings.metrics.address.empty()) endpoint = open_endpoint();
  services.poller->start();
  if (settings.recorder.signal != 0)
    record_asked = std::make_unique<record_on_signal>(settings.recorder.signal, [this] {
      try {
        log_warning("the flight record is in " + write_record({}, "a signal").string());
      } catch (const exception& failure) {
        log_warning(failure.what());
      }
    });
}

std::function<buffer(lent_kind what, std::size_t size_bytes)>
runtime::parts::lender(std::shared_ptr<memory_pool> pool) const {
  return [pool = std::move(pool), recorder = services.recorder, counts = metrics,
          about = versions()](lent_kind what, std::size_t size_bytes) {
    if (what == lent_kind::memory) return pool->allocate(size_bytes);
    const std::string text = what == lent_kind::metrics
                                 ? metrics_text(*counts)
                                 : as_json(*recorder, record_stamp::now(about), "asked for by a driver");
    if (text.empty()) throw exception{errc::stopping, "the rank's process is ending, and has nothing to report"};
    buffer report = allocate_pinned(pool->where(), text.size());
    std::ranges::copy(text, report.host_span<char>().begin());
    return report;
  };
}

std::string runtime::parts::versions() const {
  return selected.collectives->version() + ", " + selected.api->version();
}

std::filesystem::path runtime::parts::write_record(const std::optional<std::filesystem::path>& file,
                                                   std::string_view why) const {
  const record_stamp stamp = record_stamp::now(versions());
  auto path = file ? *file : flight_record_path(settings.report_folder.value_or("."), stamp);
  troupe::write_flight_record(path, *services.recorder, stamp, why);
  return path;
}

void runtime::parts::end() noexcept {
  const std::lock_guard lock{mutex};
  if (std::exchange(ended, true)) return;
  return_or_report("a runtime's worlds", [&] {
    for (const auto& one : worlds->all()) return_or_report("a world", [&] { world{one}.stop(); });
  });
  record_asked.reset();
  if (member) member->end(); // a thread that forms a world may hold it, too
  member.reset();
  launchers.clear();
  endpoint.reset(); // after the worlds have stopped, so that metrics still show them
  metrics->close();
  services.poller->stop();
  helpers->stop(); // its reports are messages, and the actor system ends next
}

void runtime::parts::leave(int status) noexcept {
  return_or_report("a runtime", [status] {
    log_warning(
        "exit(" + std::to_string(status) +
        ") was called in a function that troupe calls (on_event(), a rank's function or a reply's), on a thread "
        "for which the end of the runtime would wait: the process ends at once, and requests in flight are not "
        "answered. Call exit() on a thread of your own");
  });
}

runtime::parts::forming_call::forming_call(parts& of) : of_{of} {
  const std::lock_guard lock{of_.mutex};
  ++of_.forming_count;
}

runtime::parts::forming_call::~forming_call() {
  const std::lock_guard lock{of_.mutex}; // also while it notifies: the parts may be destroyed immediately afterwards
  if (--of_.forming_count == 0) of_.formed_.notify_all();
}

bool runtime::parts::await_formings() {
  const world_deadlines& limits = settings.deadlines;
  const time_point until = later(later(later(steady_now(), limits.form), limits.drain), limits.abort);
  std::unique_lock lock{mutex};
  return formed_.wait_until(lock, until, [this] { return forming_count == 0; });
}

runtime::parts::~parts() {
  end();
  worlds->close();
  if (!own_system && !process_is_ending()) leave_host();
  for (const auto& one : worlds->all()) {
    // Handles to actors must not outlive the actor system, and a user's world handle may outlive this runtime.
    one->actor = world_inner_handle{};
    one->status->gate()->close(); // a request that was being admitted when the world ended may have kept its devices
    one->ranks->clear();
    std::shared_ptr<registered_pool> released;
    const std::lock_guard lock{one->registered_guard};
    released.swap(one->registered);
  }
}

void runtime::parts::leave_host() {
  std::vector<caf::weak_actor_ptr> actors;
  const auto add = [&](const auto& handle) {
    if (handle) actors.push_back(caf::actor_cast<caf::weak_actor_ptr>(handle));
  };
  for (const auto& one : worlds->all()) {
    add(one->actor);
    for (std::size_t place = 0; place < one->ranks->size(); ++place) add(one->ranks->at(place));
  }
  if (!compat::await_end(actors, settings.deadlines.drain))
    log_warning("actors of troupe are left in the client's actor system");
}

/// The processes of a job on one host have one address in their environment, so each serves at the port of its place
/// there. One that cannot listen goes on without metrics.
std::unique_ptr<metrics_endpoint> runtime::parts::open_endpoint() const {
  check(settings.metrics);
  if (!spans_processes()) return serve_metrics(settings.metrics, metrics);
  auto where = parse_metrics_address(settings.metrics.address);
  const int place = settings.control.assignment.device.value_or(settings.position ? settings.position->local_rank : 0);
  constexpr int last_port = std::numeric_limits<std::uint16_t>::max();
  metrics_settings own = settings.metrics;
  if (where.port != 0 && place <= last_port - where.port) {
    where.port = static_cast<std::uint16_t>(where.port + place);
    own.address = to_string(where);
  }
  try {
    return serve_metrics(own, metrics);
  } catch (const exception& failure) {
    if (failure.why().code != errc::invalid_argument) throw;
    log_warning("this process serves no metrics: " + failure.why().text);
    return nullptr;
  }
}

device_id runtime::parts::device_of_first_rank() const {
  if (is_controlled() && settings.control.assignment.device)
    return choose_local_device({.local_rank = *settings.control.assignment.device}, selected.api->device_count());
  const bool counts = settings.position && (is_controlled() || settings.position->world_size > 1);
  return counts ? choose_local_device(*settings.position, selected.api->device_count()) : device_id{0};
}

int runtime::parts::rank_count() const {
  if (spans_processes()) return 1;
  return settings.ranks > 0 ? settings.ranks : selected.api->device_count();
}

std::vector<device_id> runtime::parts::devices_for(const std::vector<device_id>& named) const {
  const int present = selected.api->device_count();
  const std::string driver{selected.api->name()};
  if (named.empty()) {
    const int count = rank_count();
    if (!spans_processes() && count > present)
      throw exception{errc::invalid_argument, "ranks is " + std::to_string(count) + ", but the " + driver +
                                                  " driver has " + std::to_string(present) +
                                                  " devices: one rank needs one device"};
    std::vector<device_id> all;
    for (int i = 0; i < count; ++i) all.emplace_back(device_of_first_rank().value() + i);
    return all;
  }
  if (spans_processes())
    throw exception{errc::invalid_argument,
                    "world_options::devices names " + std::to_string(named.size()) +
                        " devices, but this process holds one rank of a world over processes, on the device that its "
                        "place or its launcher determines: leave them out, or start this process alone"};
  for (auto one = named.begin(); one != named.end(); ++one) {
    if (one->value() < 0 || one->value() >= present)
      throw exception{errc::invalid_argument, "world_options::devices names device " + to_string(*one) + ", but the " +
                                                  driver + " driver has devices 0 to " + std::to_string(present - 1)};
    if (std::find(named.begin(), one, *one) != one)
      throw exception{errc::invalid_argument,
                      "world_options::devices names device " + to_string(*one) + " twice: one rank needs one device"};
  }
  return named;
}

void runtime::parts::claim(const std::vector<device_id>& wanted) {
  if (ended) throw exception{errc::stopping, "the process is ending: no world can be formed any more"};
  std::map<device_id, std::shared_ptr<void>> made; // all or none
  for (const device_id where : wanted) {
    if (claims.contains(where)) continue;
    if (const std::string name = name_to_claim(*selected.api, where); !name.empty())
      made.emplace(where, claim_in_process(name));
  }
  claims.merge(made);
}

completion_strategy runtime::parts::strategy(completion_strategy asked) const {
  return asked == completion_strategy::automatic ? selected.by_default : asked;
}

std::string runtime::parts::strategy_text() const {
  const auto used = choose_strategy(strategy(settings.strategy), *selected.api, device_of_first_rank());
  std::string text{to_string(used)};
  return settings.strategy == used ? text : text + " (" + std::string{to_string(settings.strategy)} + ')';
}

std::size_t runtime::parts::spinner_count() const {
  return static_cast<std::size_t>(rank_count()) + 1 + workers();
}

std::size_t runtime::parts::workers() const {
  if (system == nullptr) return worker_count(settings);
  const auto set = compat::worker_count_of(system->config());
  return set.value_or(std::max<std::size_t>(std::thread::hardware_concurrency(), 4)); // CAF's default
}

thread_plan runtime::parts::place_threads() const {
  if (settings.placement == thread_placement::anywhere) return {};
  std::vector<device_id> in_use;
  for (int i = 0; i < rank_count(); ++i) in_use.emplace_back(device_of_first_rank().value() + i);
  return plan_threads(*selected.api, in_use, wait.used != latency_profile::frugal);
}

std::shared_ptr<memory_pool> runtime::parts::make_pool(const std::shared_ptr<device>& on) const {
  auto made = memory_pool::create(on);
  const auto run = [jobs = std::weak_ptr{helpers}, limit = settings.deadlines.drain,
                    name = "returning unused memory of device " +
                           to_string(on->id())](const std::shared_ptr<memory_pool>& pool) {
    const auto alive = jobs.lock();
    if (!alive) return;
    alive->run(
        name, limit, [pool] { pool->return_excess(); },
        [pool, name](const error& why) {
          if (!why) return;
          pool->excess_stays();
          if (why.code != errc::stopping) log_info(name + " failed: " + to_string(why));
        });
  };
  made->keep(std::max(settings.pool.keep_bytes, settings.pool.reserve_bytes),
             [run](const std::shared_ptr<memory_pool>& pool) {
               return_or_report("unused memory of a pool", [&] { run(pool); });
             });
  return made;
}

local_rank runtime::parts::make_local(rank self, device_id where, pool_uses& uses) {
  auto& opened = devices[where];
  if (!opened) opened = device::open(selected.api, where);
  auto& pool = pools[where];
  if (!pool) {
    pool = make_pool(opened);
    services.staging->add(pool);
  }
  uses.add(*pool);
  if (settings.pool.reserve_bytes > pool->usage().reserved_bytes) pool->reserve(settings.pool.reserve_bytes);
  if (!services.slots)
    services.slots =
        std::make_shared<slot_table>(opened, slots_per_device * static_cast<std::size_t>(selected.api->device_count()));
  auto& launch_thread = launchers[where];
  if (!launch_thread)
    launch_thread = std::make_shared<launcher>(
        opened, wait.wait, settings.limits.check_interval, std::chrono::seconds{5},
        [where, near = threads.launcher_of(where)] { begin_thread("troupe/gpu" + to_string(where), near); });
  return {self, opened, launch_thread};
}

std::shared_ptr<membership> runtime::parts::join(device_id where, std::function<void()> stands_by) {
  const std::lock_guard lock{mutex};
  if (ended) throw exception{errc::stopping, "the runtime has ended, because the process ends"};
  if (member)
    throw exception{errc::invalid_argument, "this runtime has joined its controller's world already: it holds one rank "
                                            "of that world, from which other worlds can be split"};
  member = need_processes_package("a controller (control.address, TROUPE_CONTROL) needs worlds over processes")
               .join({.settings = settings,
                      .selected = selected,
                      .where = where,
                      .helpers = helpers,
                      .time = services.time,
                      .wait = wait.wait,
                      .stands_by = std::move(stands_by)});
  return member;
}

} // namespace troupe
