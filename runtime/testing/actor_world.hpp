/// A world of troupe's own actors in an actor system of yours that takes one step at a time: CAF's fixtures for
/// deterministic tests of actors, of either line.
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

/// How an actor system is stepped by the test that owns it.
struct actor_steps {
  caf::actor_system* system = nullptr;
  std::function<bool()> handle_one;         ///< Some actor handles one message; false: there was none.
  std::function<void(nanoseconds)> advance; ///< The system's clock, and what was delayed until then is sent.
};

/// Those of a fixture: CAF 0.17's `test_coordinator_fixture`, CAF 1.x's `caf::test::fixture::deterministic`.
template <class Fixture>
[[nodiscard]] actor_steps steps_of(Fixture& of) {
  if constexpr (requires { of.dispatch_message(); })
    return {&of.sys, [&of] { return of.dispatch_message(); },
            [&of](nanoseconds span) { static_cast<void>(of.advance_time(span)); }};
  else
    return {&of.sys, [&of] { return of.sched.try_run_once(); },
            [&of](nanoseconds span) { static_cast<void>(of.sched.clock().advance_time(span)); }};
}

/// A virtual_world whose requests are messages to actors. Actors of yours live in the same system and ask it as they
/// would in production; messages are handled, and time passes, when the test says so. Time and threads: as for
/// virtual_world; the fixture's clock goes with it.
///
/// Lifetime: troupe's message types are known before the fixture is made (register_message_types(), or, with CAF 1.x's
/// test library, CAF_TEST_MAIN(caf::id_block::troupe)). The world ends before the fixture, and actors of yours that
/// hold handles of it do, too.
class actor_world {
public:
  /// Returns when the world is ready or has failed: see status().
  /// Errors: invalid_argument (options, or another virtual world on this thread).
  actor_world(int ranks, actor_steps steps, virtual_options options = {});
  actor_world(const actor_world&) = delete;
  actor_world& operator=(const actor_world&) = delete;
  /// Stops it: what hangs is released, and whatever is pending is answered.
  ~actor_world();

  /// For actors: the world, and one rank's collective actor, as of troupe::world.
  [[nodiscard]] world_handle actor() const;
  /// As world::collective().
  [[nodiscard]] const collective_handle& collective(rank whom) const;
  /// As world::local_ranks().
  [[nodiscard]] std::vector<rank> local_ranks() const;
  /// As world::status().
  [[nodiscard]] world_event status() const;
  /// As world::epoch().
  [[nodiscard]] troupe::epoch epoch() const { return status().epoch; }
  /// As world::allocate().
  [[nodiscard]] buffer allocate(rank where, std::size_t size_bytes) const;

  /// Lets all actors handle what they have been sent, and troupe's threads what follows, while no time passes.
  void settle();
  /// Lets \p span of virtual time pass.
  void advance(nanoseconds span);
  /// Lets time pass until \p enough, for \p at_most. Returns whether it was.
  [[nodiscard]] bool run_until(const std::function<bool()>& enough, nanoseconds at_most);
  /// The same until the world is ready in \p wanted or a later epoch.
  [[nodiscard]] bool run_until_ready(troupe::epoch wanted, nanoseconds at_most);

  /// All so far, from "forming" on.
  [[nodiscard]] const std::vector<virtual_event>& events() const noexcept;
  /// What goes wrong, and what was launched.
  [[nodiscard]] fault_script& script() noexcept;
  /// The pretended devices.
  [[nodiscard]] mock_driver& devices() noexcept;

private:
  class stage;
  std::unique_ptr<stage> stage_;
};

} // namespace troupe::testing
