/// Keeps a thread on the CPUs near its device, and gives it a name that tools show.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/topology/cpu_set.hpp>
#include <troupe/device/topology/machine.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// Where troupe's threads run.
enum class thread_placement : std::uint8_t {
  near_device, ///< "near": on the CPUs local to the device that they serve.
  anywhere,    ///< "none": where the operating system likes.
};

[[nodiscard]] std::string_view to_string(thread_placement placement) noexcept;
/// Errors: invalid_argument, naming the choices.
[[nodiscard]] thread_placement parse_thread_placement(std::string_view name);

/// The CPUs that any thread of this process may use now (taskset, cgroups).
/// Errors: unsupported.
[[nodiscard]] cpu_set usable_cpus(const machine& host = machine::here());

/// What became of a wish to be bound.
struct thread_binding {
  cpu_set cpus{}; ///< Where the thread may run now; empty if it was left where it was.
  error why{};    ///< Why it was left: none if it was bound.
};

/// Binds the calling thread to those of \p wanted that the process may use. Where there is none of them, or the system
/// refuses, the thread stays where it was: a slower thread is better than none.
[[nodiscard]] thread_binding bind_this_thread(const cpu_set& wanted, const machine& host = machine::here()) noexcept;

/// Names the calling thread; Linux keeps the first 15 characters.
void name_this_thread(const std::string& name) noexcept;

} // namespace troupe
