/// Defines the machine for worlds in virtual time: simulated devices, and the threads that serve them, as fibers of one
/// thread.
#pragma once

#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/testing/simulation/fibers.hpp>
#include <troupe/testing/simulation/simulated_world.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::testing {

/// Simulated devices and the fibers that serve them. Threads: only the one that constructed it.
class virtual_machine {
public:
  /// Errors: invalid_argument (invalid \p count or options, or another virtual machine on this thread).
  virtual_machine(int count, virtual_options wanted);
  virtual_machine(const virtual_machine&) = delete;
  virtual_machine& operator=(const virtual_machine&) = delete;
  /// Lets hanging calls return. Its worlds must have ended.
  ~virtual_machine();

  /// Lets time pass until \p enough returns true, for at most \p at_most. Returns whether it did.
  bool run_until(const std::function<bool()>& enough, nanoseconds at_most);
  /// Returns the sum of everything that can take long at a world's end, for each rebuild.
  [[nodiscard]] nanoseconds longest_stop() const;

  virtual_options options;
  std::shared_ptr<fibers> threads;
  time_point began;
  simulation::simulated_terms terms;
  std::unique_ptr<simulation::simulated_machine> machine;
  /// Indexed by place, which is the rank's number in the first epoch.
  std::vector<std::shared_ptr<device>> devices;
  std::vector<std::shared_ptr<memory_pool>> pools;
};

class world_in_virtual_time::core {
public:
  core(int ranks, virtual_options wanted) : on{ranks, std::move(wanted)} {}
  core(const core&) = delete;
  core& operator=(const core&) = delete;
  virtual ~core() = default;

  [[nodiscard]] virtual world_event status() const = 0;
  virtual bool run_until(const std::function<bool()>& enough, nanoseconds at_most) = 0;
  virtual void register_memory(const registration_request& asked, std::shared_ptr<registration_promise> reply) = 0;

  /// Returns the answer to \p ask, which arrives while time passes. Errors: that of the answer; deadline_exceeded (none
  /// within an hour).
  template <class Value, class Ask>
  [[nodiscard]] Value await(const Ask& ask) {
    const auto seen = std::make_shared<std::optional<std::variant<Value, error>>>();
    ask(std::make_shared<value_promise<Value>>(
        [seen](std::variant<Value, error> result) { *seen = std::move(result); }));
    if (!run_until([&] { return seen->has_value(); }, std::chrono::hours{1}))
      throw exception{errc::deadline_exceeded, "there is no answer after an hour of virtual time"};
    if (error* why = std::get_if<error>(&**seen)) throw exception{std::move(*why)};
    return std::get<Value>(std::move(**seen));
  }

  virtual_machine on;
  std::vector<virtual_event> events;
  std::shared_ptr<registered_pool> registered; ///< Null if none has been registered.
};

/// Returns the place of the rank that is numbered \p target in \p now. Errors: invalid_argument for an unknown rank.
[[nodiscard]] std::size_t place_of(rank target, const world_event& now);

} // namespace troupe::testing
