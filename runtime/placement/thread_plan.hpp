/// Decides on which CPUs a runtime's launchers and poller run, and how many workers its actor system has.
#pragma once

#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/device/topology/topology.hpp>
#include <troupe/runtime/configuration/configuration.hpp>

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// The CPUs of each thread. A thread with an empty set may run anywhere.
struct thread_plan {
  std::map<device_id, cpu_set> launchers;
  cpu_set poller; ///< The CPUs near all devices in use; the actors' workers run there too.
  /// Human-readable reasons why a thread is not bound although the location of its device is known.
  std::vector<std::string> notes;

  [[nodiscard]] cpu_set launcher_of(device_id id) const;
};

/// Places launchers near their devices, and the poller near all devices in use. The poller may run anywhere if the
/// location of one device is unknown. Threads that spin need a CPU each, because two that spin on one CPU would wait
/// for each other. If a device has fewer usable CPUs nearby than launchers and pollers that would spin there, its
/// launcher may run anywhere.
[[nodiscard]] thread_plan plan_threads(std::span<const device_place> in_use, const cpu_set& usable, bool spinning);

/// Plans the threads for devices of \p api, whose locations it queries. Never throws: if the machine or a device does
/// not report its location, threads may run anywhere, and the log says why.
[[nodiscard]] thread_plan plan_threads(driver& api, std::span<const device_id> in_use, bool spinning) noexcept;

/// Returns the number of workers of an actor system that a runtime with \p settings makes or prepares.
[[nodiscard]] std::size_t worker_count(const configuration& settings);

/// Names the calling thread and binds it as place_thread() does.
void begin_thread(const std::string& name, const cpu_set& near) noexcept;
/// Binds the calling thread to \p near, unless that is empty. The log says whether it succeeded.
void place_thread(const std::string& name, const cpu_set& near) noexcept;

} // namespace troupe
