#include <troupe/actors/caf/caf_host.hpp>
#include <troupe/actors/caf/remote_messages.hpp>
#include <troupe/runtime/interop/host_system.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

namespace troupe {

namespace {

using namespace std::chrono_literals;

std::size_t host_workers(const caf::actor_system_config& host, const configuration& settings) {
  if (const auto set = compat::worker_count_of(host)) return *set;
  if (settings.scheduler_threads > 0) return settings.scheduler_threads;
  return std::max<std::size_t>(std::thread::hardware_concurrency(), 4); // CAF's default
}

/// Returns how long the host's workers spin, or nothing if they do not.
std::optional<std::chrono::nanoseconds> host_spin(const caf::actor_system_config& host, const configuration& settings) {
  const auto ranks = static_cast<std::size_t>(std::max(settings.ranks, 1));
  const std::size_t spinners = ranks + 1 + host_workers(host, settings);
  switch (choose_wait(settings.profile, spinners, std::thread::hardware_concurrency()).used) {
    case latency_profile::latency: return 50s;
    case latency_profile::balanced: return 200ms;
    case latency_profile::frugal: break;
  }
  return {};
}

} // namespace

void prepare_host(caf::actor_system_config& host, const configuration& settings) {
  add_message_types(host);
  if (!compat::worker_count_of(host) && settings.scheduler_threads > 0)
    compat::set_worker_count(host, settings.scheduler_threads);
  compat::set_messages_per_turn(host, 1);
  const auto spin = host_spin(host, settings);
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
  const auto spin = host_spin(host, settings);
  if (spin && compat::worker_spin_of(host) < *spin / 2)
    found.emplace_back(
        "its workers sleep between polls for work: a reply to an actor that wakes one took 50 to 100 us in "
        "a measurement, where a spinning one takes 2 to 5");
  if (settings.profile != latency_profile::frugal && !spin)
    found.push_back("its " + std::to_string(host_workers(host, settings)) +
                    " workers, with troupe's own threads, are too many to spin on this machine's " +
                    std::to_string(std::thread::hardware_concurrency()) +
                    " cores: give it fewer (caf.scheduler.max-threads), or expect 50 to 100 us more for a reply to an "
                    "actor that wakes one");
  return found;
}

} // namespace troupe
