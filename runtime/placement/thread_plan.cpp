#include <troupe/device/memory/leak_report.hpp>
#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/placement/thread_plan.hpp>

#include <algorithm>
#include <thread>

namespace troupe {

namespace {

bool place_is_known(const device_place& place) {
  return !place.local.cpus.empty();
}

} // namespace

std::size_t worker_count(const configuration& settings) {
  if (settings.scheduler_threads > 0) return settings.scheduler_threads;
  return std::clamp<std::size_t>(std::thread::hardware_concurrency() / 8, 2, 4);
}

cpu_set thread_plan::launcher_of(device_id id) const {
  const auto found = launchers.find(id);
  return found != launchers.end() ? found->second : cpu_set{};
}

thread_plan plan_threads(std::span<const device_place> in_use, const cpu_set& usable, bool spinning) {
  thread_plan plan;
  for (const device_place& place : in_use) {
    if (!place_is_known(place)) continue;
    const cpu_set near = intersection_of(place.local.cpus, usable);
    const auto launchers = std::ranges::count_if(
        in_use, [&](const device_place& other) { return !intersection_of(other.local.cpus, near).empty(); });
    const auto spinners = static_cast<std::size_t>(launchers) + 1; // plus the poller
    if (spinning && !near.empty() && near.size() < spinners) {
      plan.notes.push_back("device " + to_string(place.id) + " is near the CPUs " + to_string(near) + ", too few for " +
                           std::to_string(spinners) + " spinning threads: its launcher runs anywhere");
      continue;
    }
    // All near CPUs, not only the usable ones: binding skips CPUs that are not usable, and reports if none remains.
    plan.launchers[place.id] = place.local.cpus;
    plan.poller = union_of(plan.poller, place.local.cpus);
  }
  if (plan.launchers.size() < in_use.size()) plan.poller = {};
  return plan;
}

thread_plan plan_threads(driver& api, std::span<const device_id> in_use, bool spinning) noexcept {
  try {
    std::vector<device_place> places;
    for (const device_id id : in_use)
      if (id.value() < api.device_count()) places.push_back(place_of(api, id)); // forming a world refuses the others
    if (std::ranges::none_of(places, place_is_known)) return {};
    thread_plan plan = plan_threads(places, usable_cpus(), spinning);
    for (const auto& note : plan.notes) log_info(note);
    return plan;
  } catch (...) {
    const error why = current_error();
    return_or_report("the log of a placement", [&] { log_warning("threads run anywhere: " + to_string(why)); });
    return {};
  }
}

void begin_thread(const std::string& name, const cpu_set& near) noexcept {
  name_this_thread(name);
  place_thread(name, near);
}

void place_thread(const std::string& name, const cpu_set& near) noexcept {
  if (near.empty()) return;
  const thread_binding bound = bind_this_thread(near);
  return_or_report("the log of a placement", [&] {
    if (bound.why)
      log_warning("the thread " + name + " runs anywhere: " + to_string(bound.why));
    else
      log_debug("the thread " + name + " runs on the CPUs " + to_string(bound.cpus));
  });
}

} // namespace troupe
