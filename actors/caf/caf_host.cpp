#include <troupe/actors/caf/caf_host.hpp>
#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/collectives/progress/absence_report.hpp>
#include <troupe/completion/poller/latch.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/process_exit.hpp>
#include <troupe/device/threads/worker.hpp>

#if TROUPE_CAF_0_17
#include <caf/logger.hpp>
#endif

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {

void register_message_types() {
  static std::once_flag once;
  std::call_once(once, [] {
    TROUPE_REGISTER_LOCAL_TYPES(troupe);
    TROUPE_REGISTER_LOCAL_TYPES(troupe_inner);
    compat::register_core_types();
  });
}

} // namespace troupe

namespace troupe::compat {

namespace {

std::optional<std::size_t> setting_of(const caf::actor_system_config& settings, const char* name) {
  constexpr auto unset = std::numeric_limits<std::size_t>::max();
  const std::size_t found = caf::get_or(settings, std::string{settings_prefix} + name, unset);
  return found == unset ? std::nullopt : std::optional{found};
}

bool has_ended(const caf::weak_actor_ptr& one) {
  const caf::strong_actor_ptr alive = one.lock();
  if (!alive) return true;
  return caf::actor_cast<caf::abstract_actor*>(alive)->getf(caf::abstract_actor::is_terminated_flag);
}

/// Starts \p count threads that run at the same time and each allocate memory, then ends them.
void try_threads(std::size_t count) {
  std::atomic<bool> has_memory{true};
  latch may_end;
  std::vector<worker> all;
  all.reserve(count);
  const auto end_all = [&] {
    may_end.open();
    for (worker& one : all) one.join();
  };
  try {
    while (all.size() < count)
      all.emplace_back([&] {
        void* const some = std::malloc(1024); // NOLINT: the first allocation of a thread reserves addresses for more
        if (some == nullptr) has_memory = false;
        may_end.wait();
        std::free(some); // NOLINT
      });
  } catch (...) {
    end_all();
    throw;
  }
  end_all();
  if (!has_memory) throw std::bad_alloc{};
}

} // namespace

void release_logger() noexcept {
#if TROUPE_CAF_0_17
  caf::logger::set_current_actor_system(nullptr);
#endif
}

struct own_actor_system::parts {
  std::unique_ptr<caf::actor_system_config> settings;
  std::unique_ptr<caf::actor_system> system;
  latch ended;
};

own_actor_system::own_actor_system(std::unique_ptr<caf::actor_system_config> settings,
                                   std::chrono::nanoseconds longest_end)
  : parts_{std::make_shared<parts>()}, longest_end_{longest_end} {
  parts_->settings = std::move(settings);
  constexpr std::size_t most_others = 6; // CAF's clock, printer and I/O threads
  const std::size_t cores = std::max<std::size_t>(4, std::thread::hardware_concurrency());
  try_threads(worker_count_of(*parts_->settings).value_or(cores) + most_others);
  parts_->system = std::make_unique<caf::actor_system>(*parts_->settings);
  release_logger();
}

own_actor_system::~own_actor_system() {
  if (process_is_ending()) {
    static auto* const left = new std::vector<std::shared_ptr<parts>>;
    left->push_back(std::move(parts_));
    return;
  }
  release_logger(); // this thread may have spawned the client's actors
  try {
    worker{[ending = parts_] {
      ending->system.reset();
      ending->ended.open();
    }}.detach();
  } catch (const exception&) { // no thread can be started
    parts_->system.reset();
    return;
  }
  if (!parts_->ended.wait_for(longest_end_))
    report_leak({.code = errc::deadline_exceeded,
                 .text = "the runtime's actor system has not ended within deadlines.drain, " + describe(longest_end_) +
                         ": an actor of the client lives in it, or a thread that spawned an actor there or has a "
                         "scoped_actor still runs. End these actors and threads before the runtime"});
}

caf::actor_system& own_actor_system::get() noexcept {
  return *parts_->system;
}

std::optional<std::size_t> worker_count_of(const caf::actor_system_config& settings) {
  return setting_of(settings, "scheduler.max-threads");
}

std::optional<std::size_t> messages_per_turn_of(const caf::actor_system_config& settings) {
  return setting_of(settings, "scheduler.max-throughput");
}

std::chrono::nanoseconds worker_spin_of(const caf::actor_system_config& settings) {
  constexpr std::size_t of_caf = 100; // CAF's default in both lines
  return poll_interval * setting_of(settings, "work-stealing.aggressive-poll-attempts").value_or(of_caf);
}

bool knows_messages() {
#if TROUPE_CAF_0_17
  return true;
#else
  return !caf::query_type_name(caf::type_id_v<troupe::world_request>).empty();
#endif
}

bool is_stepped(caf::actor_system& system) {
  const auto before = system.clock().now();
  std::this_thread::sleep_for(std::chrono::microseconds{1}); // a running clock is later by at least that
  return system.clock().now() == before;
}

bool await_end(const std::vector<caf::weak_actor_ptr>& actors, std::chrono::nanoseconds longest) {
  // The actors have already been asked to end: this only waits until each has handled its last messages.
  const auto give_up = std::chrono::steady_clock::now() + longest;
  while (!std::ranges::all_of(actors, has_ended)) {
    if (std::chrono::steady_clock::now() >= give_up) return false;
    std::this_thread::sleep_for(std::chrono::microseconds{100});
  }
  return true;
}

} // namespace troupe::compat
