/// Defines a world whose actors run in an actor system that the test steps, with the fixtures for deterministic tests
/// of CAF 0.17 and 1.x.
#pragma once

#include <troupe/actors/caf/messages.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <cstddef>
#include <functional>
#include <memory>

namespace caf {
class actor_system;
}

namespace troupe::testing {

/// The functions by which a test steps the actor system that it owns.
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

/// A virtual_world whose requests are messages to actors. Your actors are in the same system and send requests as they
/// would in production. Messages are handled and time passes only in calls that the test makes. Time and threads: as
/// for virtual_world; the fixture's clock advances with the virtual time.
///
/// Lifetime: with CAF 1.x, register troupe's message types before the fixture is made:
/// TROUPE_REGISTER_LOCAL_TYPES(troupe), or CAF_TEST_MAIN(caf::id_block::troupe) of its test library. The world, and
/// your actors that hold handles to it, end before the fixture.
class actor_world : public world_in_virtual_time {
public:
  /// Forms a world. Returns when it is ready or has failed: see status(). Errors: invalid_argument (options, or another
  /// virtual world on this thread).
  actor_world(int ranks, actor_steps steps, virtual_options options = {});
  actor_world(const actor_world&) = delete;
  actor_world& operator=(const actor_world&) = delete;
  /// Stops the world: hanging operations are released, and all pending requests are answered.
  ~actor_world() override;

  /// Lets all actors handle their messages and troupe's threads do the resulting work, until nothing is left. No time
  /// passes.
  void settle();
  /// Lets \p span of virtual time pass.
  void advance(nanoseconds span);

private:
  class impl;
  friend world_handle actor_of(const actor_world& where);
  friend collective_handle collective_of(const actor_world& where, rank target);
  [[nodiscard]] core& shared() const noexcept override;

  std::unique_ptr<impl> impl_;
};

/// Returns the world's actor, as the function of a troupe::world does.
[[nodiscard]] world_handle actor_of(const actor_world& where);
/// Returns the actor of rank \p target, as the function of a troupe::world does. Errors: invalid_argument (not one of
/// local_ranks()).
[[nodiscard]] collective_handle collective_of(const actor_world& where, rank target);

} // namespace troupe::testing
