#include <troupe/device/threads/thread_scheduler.hpp>
#include <troupe/device/topology/thread_binding.hpp>

#include <hwloc.h>
#include <pthread.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace troupe {

namespace {

using bitmap_owner = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;

bitmap_owner new_bitmap() {
  bitmap_owner made{hwloc_bitmap_alloc(), &hwloc_bitmap_free};
  if (!made) throw std::bad_alloc{};
  return made;
}

cpu_set bind(const cpu_set& wanted, const machine& host) {
  if (wanted.empty()) throw exception{errc::invalid_argument, "no CPUs to bind a thread to: name at least one"};
  if (!host.is_here())
    throw exception{errc::unsupported,
                    "hwloc uses a description of a machine instead of this machine, so threads cannot be bound: unset "
                    "HWLOC_XMLFILE and HWLOC_SYNTHETIC, or use TROUPE_PLACEMENT=none"};
  const cpu_set usable = usable_cpus(host);
  cpu_set chosen = intersection_of(wanted, usable);
  if (chosen.empty())
    throw exception{errc::unsupported, "this process may use none of the CPUs " + to_string(wanted) + ", only " +
                                           to_string(usable) +
                                           ": allow it more CPUs (taskset, cgroup), or use TROUPE_PLACEMENT=none"};
  const bitmap_owner bits = new_bitmap();
  for (const int cpu : chosen.cpus())
    if (hwloc_bitmap_set(bits.get(), static_cast<unsigned>(cpu)) != 0) throw std::bad_alloc{};
  if (hwloc_set_cpubind(host.native(), bits.get(), HWLOC_CPUBIND_THREAD) != 0)
    throw_system_error(errc::unsupported, "hwloc_set_cpubind",
                       "the thread could not be bound to the CPUs " + to_string(chosen) +
                           ": use TROUPE_PLACEMENT=none where binding is not allowed");
  return chosen;
}

} // namespace

cpu_set usable_cpus(const machine& host) {
  const bitmap_owner bits = new_bitmap();
  // The process is queried first, because the calling thread may have been bound by its owner. The query of the process
  // can fail while threads start and end.
  if (hwloc_get_cpubind(host.native(), bits.get(), HWLOC_CPUBIND_PROCESS) != 0 &&
      hwloc_get_cpubind(host.native(), bits.get(), HWLOC_CPUBIND_THREAD) != 0)
    throw_system_error(errc::unsupported, "hwloc_get_cpubind",
                       "the CPUs that this process may use cannot be determined");
  std::vector<int> cpus;
  for (int cpu = hwloc_bitmap_first(bits.get()); cpu >= 0; cpu = hwloc_bitmap_next(bits.get(), cpu))
    cpus.push_back(cpu);
  return cpu_set{std::move(cpus)};
}

thread_binding bind_this_thread(const cpu_set& wanted, const machine& host) noexcept {
  try {
    return {.cpus = bind(wanted, host)};
  } catch (...) {
    return {.why = current_error()};
  }
}

void name_this_thread(const std::string& name) noexcept {
  if (thread_scheduler::current() != nullptr) return;
  // The call fails only for a name longer than Linux allows, so the name is truncated here.
  try {
    static_cast<void>(pthread_setname_np(pthread_self(), name.substr(0, 15).c_str()));
  } catch (...) { // no memory for a copy: the thread keeps its old name
  }
}

} // namespace troupe
