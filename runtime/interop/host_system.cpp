#include <troupe/actors/caf/caf_host.hpp>
#include <troupe/actors/caf/remote_messages.hpp>
#include <troupe/runtime/interop/host_system.hpp>
#include <troupe/runtime/placement/thread_plan.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

namespace troupe {

namespace {

using namespace std::chrono_literals;

/// Returns the number of workers that the host starts.
std::size_t host_workers(const caf::actor_system_config& host) {
  return compat::worker_count_of(host).value_or(
      std::max<std::size_t>(std::thread::hardware_concurrency(), 4)); // CAF's default
}

/// Returns how long \p workers workers spin, or nothing if they do not.
std::optional<std::chrono::nanoseconds> spin_of(std::size_t workers, const configuration& settings) {
  const auto ranks = static_cast<std::size_t>(std::max(settings.ranks, 1));
  switch (choose_wait(settings.profile, ranks + 1 + workers, std::thread::hardware_concurrency()).used) {
    case latency_profile::latency: return 50s;
    case latency_profile::balanced: return 200ms;
    case latency_profile::frugal: break;
  }
  return {};
}

} // namespace

void prepare_host(caf::actor_system_config& host, const configuration& settings) {
  add_message_types(host);
  if (!compat::worker_count_of(host)) compat::set_worker_count(host, worker_count(settings));
  compat::set_messages_per_turn(host, 1);
  const auto spin = spin_of(host_workers(host), settings);
  if (!spin) return;
  compat::set_worker_nap(host, 20ms);
  compat::set_worker_spin(host, *spin);
  compat::on_thread_start(host, [] { compat::end_waits_in_time(); });
}

std::vector<std::string> host_shortcomings(const caf::actor_system_config& host, const configuration& settings) {
  std::vector<std::string> found;
  const auto turn = compat::messages_per_turn_of(host);
  if (!turn || *turn > 1)
    found.push_back("its actors handle " + (turn ? "up to " + std::to_string(*turn) : std::string{"all"}) +
                    " messages in one turn; replies to other actors, and messages of a world to its ranks, wait for a "
                    "worker meanwhile: 60 messages occupied one for 600 us in a measurement");
  const auto spin = spin_of(host_workers(host), settings);
  if (spin && compat::worker_spin_of(host) < *spin / 2)
    found.emplace_back(
        "its workers sleep between polls for work: a reply to an actor that wakes one took 50 to 100 us in "
        "a measurement, where a spinning one takes 2 to 5");
  if (!spin && spin_of(worker_count(settings), settings))
    found.push_back("its " + std::to_string(host_workers(host)) +
                    " workers, with troupe's own threads, are too many to spin on this machine's " +
                    std::to_string(std::thread::hardware_concurrency()) + " cores: give it " +
                    std::to_string(worker_count(settings)) + " (" + compat::settings_prefix +
                    "scheduler.max-threads), or expect 50 to 100 us more for a reply to an actor that wakes one");
  return found;
}

} // namespace troupe
