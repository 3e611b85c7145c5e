/// Which CPUs a runtime's launchers and poller run on.
#pragma once

#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/device/topology/topology.hpp>

#include <map>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// CPUs by thread; a thread without any runs anywhere.
struct thread_plan {
  std::map<device_id, cpu_set> launchers;
  cpu_set poller;                 ///< And actors' workers: near all devices that are in use.
  std::vector<std::string> notes; ///< Why a thread is not bound though its place is known; for people.

  [[nodiscard]] cpu_set launcher_of(device_id id) const;
};

/// Launchers near their devices; the poller near all devices in use, so anywhere if the place of one is not known.
/// Threads that spin need a CPU each: where the usable CPUs near a device are fewer than the launchers and the poller
/// that would spin there, its launcher runs anywhere, for two spinning on one CPU would wait for each other.
[[nodiscard]] thread_plan plan_threads(std::span<const device_place> in_use, const cpu_set& usable, bool spinning);

/// The same for devices of \p api. Never throws: where the machine or a device does not tell, threads run anywhere, and
/// the log says why.
[[nodiscard]] thread_plan plan_threads(driver& api, std::span<const device_id> in_use, bool spinning) noexcept;

/// Gives the calling thread its name, and places it.
void begin_thread(const std::string& name, const cpu_set& near) noexcept;
/// Binds the calling thread unless \p near is empty; the log says what came of it.
void place_thread(const std::string& name, const cpu_set& near) noexcept;

} // namespace troupe
