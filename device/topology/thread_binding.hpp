/// Binds a thread to the CPUs near its device and gives it a name that tools show.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/topology/locality.hpp>
#include <troupe/device/topology/machine.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// Returns the CPUs that any thread of this process may use now (taskset, cgroups).
/// Errors: unsupported.
[[nodiscard]] cpu_set usable_cpus(const machine& host = machine::here());

/// The result of an attempt to bind a thread.
struct thread_binding {
  cpu_set cpus{}; ///< CPUs that the thread may use now; empty if it was not bound.
  error why{};    ///< Why the thread was not bound; errc::none if it was bound.
};

/// Binds the calling thread to those CPUs of \p wanted that the process may use. If there are none, or if the system
/// refuses, the binding of the thread does not change: a slower thread is better than none.
[[nodiscard]] thread_binding bind_this_thread(const cpu_set& wanted, const machine& host = machine::here()) noexcept;

/// Names the calling thread. Linux keeps the first 15 characters. A thread of a thread_scheduler has no name: it shares
/// the kernel's thread with others.
void name_this_thread(const std::string& name) noexcept;

} // namespace troupe
