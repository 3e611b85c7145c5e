/// The kinds of faults that a program can raise in a running world of its own process.
#pragma once

#include <troupe/program/support/harmful_work.hpp>

#include <troupe/collectives/backend/faults/armed_faults.hpp>
#include <troupe/runtime/world.hpp>

#include <future>
#include <span>
#include <string>
#include <string_view>

namespace troupe::program {

/// Where a fault is raised.
struct fault_scene {
  world where;
  armed_faults& faults;         ///< The injector of the world's runtime.
  rank whom;                    ///< Whose fault it is.
  nanoseconds slow_abort_takes; ///< Before it begins.
  nanoseconds spin_takes;       ///< Of work that keeps a device.
  const harmful_works& harm;    ///< Of the world's devices.
};

/// What follows from a fault.
enum class aftermath : std::uint8_t {
  stays_ready, ///< The world's epoch goes on.
  next_epoch,  ///< The world loses its communicators, and forms again.
  world_ends,  ///< No world of the process can serve any more.
};

/// A fault on its way. The world must be asked for collectives meanwhile: most wait for the next launch.
struct raised_fault {
  std::future<time_point> happened;
  std::future<completion> request{}; ///< Where the fault is in one of its own: to be answered like all others.
  std::shared_ptr<void> held{};      ///< What it is made of, until all is over.
};

/// Stateless. Threads: safe from any.
class fault_kind {
public:
  fault_kind() = default;
  fault_kind(const fault_kind&) = delete;
  fault_kind& operator=(const fault_kind&) = delete;
  virtual ~fault_kind() = default;

  /// On the command line.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// What happens, for people.
  [[nodiscard]] virtual std::string_view what() const noexcept = 0;
  [[nodiscard]] virtual aftermath leads_to() const noexcept { return aftermath::next_epoch; }
  /// Whether the world needs communicators for it, which one of a single rank lacks.
  [[nodiscard]] virtual bool needs_peers() const noexcept { return true; }
  /// Errors: internal, where what was to fail did not.
  [[nodiscard]] virtual raised_fault raise(const fault_scene& scene) const = 0;
};

/// In the order in which they are documented.
[[nodiscard]] std::span<const fault_kind* const> all_fault_kinds();
/// Errors: invalid_argument, naming the choices.
[[nodiscard]] const fault_kind& find_fault_kind(std::string_view name);
/// "withheld, refused, …".
[[nodiscard]] std::string fault_kind_names();

} // namespace troupe::program
