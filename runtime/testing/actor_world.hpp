/// A world of troupe's own actors in an actor system that the test steps, with CAF's fixtures for deterministic tests
/// (both CAF lines).
#pragma once

#include <troupe/actors/caf/messages.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace caf {
class actor_system;
}

namespace troupe::testing {

/// How a test steps the actor system that it owns.
struct actor_steps {
  caf::actor_system* system = nullptr;
  std::function<bool()> handle_one; ///< Makes an actor handle one message. Returns false if there was none.
  /// Advances the system's clock and sends the messages that were delayed until then.
  std::function<void(nanoseconds)> advance;
};

/// Returns the steps of a fixture: CAF 0.17's `test_coordinator_fixture`, or CAF 1.x's
/// `caf::test::fixture::deterministic`.
template <class Fixture>
[[nodiscard]] actor_steps steps_of(Fixture& of) {
  if constexpr (requires { of.dispatch_message(); })
    return {&of.sys, [&of] { return of.dispatch_message(); },
            [&of](nanoseconds span) { static_cast<void>(of.advance_time(span)); }};
  else
    return {&of.sys, [&of] { return of.sched.try_run_once(); },
            [&of](nanoseconds span) { static_cast<void>(of.sched.clock().advance_time(span)); }};
}

/// A virtual_world whose requests are messages to actors. Your actors are in the same system and ask the world as they
/// would in production. Messages are handled and time passes only when the test says so. Time and threads: as for
/// virtual_world; the fixture's clock advances with it.
///
/// Lifetime: register troupe's message types before the fixture is made (register_message_types(), or, with CAF 1.x's
/// test library, CAF_TEST_MAIN(caf::id_block::troupe)). The world, and your actors that hold handles to it, end before
/// the fixture.
class actor_world {
public:
  /// Forms a world. Returns when it is ready or has failed: see status(). Errors: invalid_argument (options, or another
  /// virtual world on this thread).
  actor_world(int ranks, actor_steps steps, virtual_options options = {});
  actor_world(const actor_world&) = delete;
  actor_world& operator=(const actor_world&) = delete;
  /// Stops the world: hanging operations are released, and all pending requests are answered.
  ~actor_world();

  /// Returns the world's actor, as actor_of() of a world.
  [[nodiscard]] world_handle actor() const;
  /// As collective_of() of a world.
  [[nodiscard]] collective_handle collective(rank whom) const;
  /// As world::local_ranks().
  [[nodiscard]] std::vector<rank> local_ranks() const;
  /// As world::status().
  [[nodiscard]] world_event status() const;
  /// As world::epoch().
  [[nodiscard]] troupe::epoch epoch() const { return status().epoch; }
  /// As world::allocate().
  [[nodiscard]] buffer allocate(rank where, std::size_t size_bytes) const;

  /// Lets all actors handle their messages, and troupe's threads handle what follows. No time passes.
  void settle();
  /// Lets \p span of virtual time pass.
  void advance(nanoseconds span);
  /// Lets time pass until \p enough returns true, for at most \p at_most. Returns whether it did.
  [[nodiscard]] bool run_until(const std::function<bool()>& enough, nanoseconds at_most);
  /// The same until the world is ready in \p wanted or a later epoch.
  [[nodiscard]] bool run_until_ready(troupe::epoch wanted, nanoseconds at_most);

  /// Returns all events so far, from "forming" on.
  [[nodiscard]] const std::vector<virtual_event>& events() const noexcept;
  /// Returns the fault script, which also records the launches.
  [[nodiscard]] fault_script& script() noexcept;
  /// Returns the simulated devices.
  [[nodiscard]] mock_driver& devices() noexcept;

private:
  class stage;
  std::unique_ptr<stage> stage_;
};

} // namespace troupe::testing
