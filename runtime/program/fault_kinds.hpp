/// The kinds of faults that a program can raise in a running world of its own process.
#pragma once

#include <troupe/collectives/faults/armed_faults.hpp>
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
  /// Whether the world loses its communicators; else it stays ready.
  [[nodiscard]] virtual bool ends_epoch() const noexcept { return true; }
  /// The world must be asked for collectives meanwhile: most faults wait for the next launch. The future tells when it
  /// happened. Errors: internal, where what was to fail did not.
  [[nodiscard]] virtual std::future<time_point> raise(const fault_scene& scene) const = 0;
};

/// In the order in which they are documented.
[[nodiscard]] std::span<const fault_kind* const> all_fault_kinds();
/// Errors: invalid_argument, naming the choices.
[[nodiscard]] const fault_kind& find_fault_kind(std::string_view name);
/// "withheld, refused, …".
[[nodiscard]] std::string fault_kind_names();

} // namespace troupe::program
