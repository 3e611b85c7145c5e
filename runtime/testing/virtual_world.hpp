/// A world in virtual time on the test's own thread: nothing happens while the test does not let time pass.
#pragma once

#include <troupe/actors/caf/requests.hpp>
#include <troupe/actors/world/recovery_ladder.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/actors/world/world_plan.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/order/fusion_plan.hpp>
#include <troupe/collectives/order/sequencer.hpp>
#include <troupe/completion/admission/admission_quota.hpp>
#include <troupe/completion/poller/track.hpp>
#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/testing/fault_script.hpp>
#include <troupe/testing/memory.hpp>
#include <troupe/testing/virtual_reply.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe::testing {

/// Defaults are a runtime's, but that everything may take far less time.
struct virtual_options {
  recovery_terms recovery{};
  troupe::ordering ordering = troupe::ordering::agreed;
  track_limits limits{.launch = std::chrono::milliseconds{50}, .hang = std::chrono::milliseconds{50}};
  world_deadlines deadlines{.form = std::chrono::milliseconds{200},
                            .operation = std::chrono::milliseconds{400},
                            .drain = std::chrono::milliseconds{300},
                            .release = std::chrono::milliseconds{100},
                            .abort = std::chrono::milliseconds{100}};
  completion_strategy strategy = completion_strategy::automatic;
  fusion_limits fusion{};
  sequencer_limits sequencing{};
  pending_limits pending{};
  std::size_t memory_bytes = std::size_t{16} << 20U; ///< Of each device.
  /// Which of several things that could happen at one moment comes first, and by how much messages to the world are
  /// late, is drawn from it; none: the first that could, and never. A test that holds for many seeds holds for more
  /// than one schedule.
  std::optional<std::uint64_t> seed{};
  /// Faults from the world's forming on; none: the world makes one.
  std::shared_ptr<fault_script> script{};
};

/// An event, and when it came, from the world's beginning.
struct virtual_event {
  nanoseconds at{};
  world_event event;
};

/// The world of a runtime over the mock, but for its actors and threads, whose parts take turns on the calling thread.
/// An ask never waits (BLK-1): its reply comes while time passes, by advance(), run_until() or virtual_reply::get().
/// The same calls give the same run (DET-1). What clients of troupe::world call is called the same here, so that a
/// client that is a template of its world is tested in virtual time.
///
/// Time: steady_now(), and what troupe's threads wait by. It stands still while anything can happen, then jumps.
/// Lifetime: one at a time on a thread, on which nothing of a world in real time may be called meanwhile; buffers of
/// it may outlive it, and until they have ended there can be no other.
/// Threads: the one that made it.
class virtual_world {
public:
  /// Returns when the world is ready or has failed: see status().
  /// Errors: invalid_argument (options, or another virtual world on this thread).
  explicit virtual_world(int ranks, virtual_options options = {});
  virtual_world(const virtual_world&) = delete;
  virtual_world& operator=(const virtual_world&) = delete;
  /// Stops it: what hangs is released, and whatever is pending is answered.
  ~virtual_world();

  /// As troupe::world's: of the present epoch.
  [[nodiscard]] int size() const;
  /// As world::local_ranks().
  [[nodiscard]] std::vector<rank> local_ranks() const;
  /// As world::status().
  [[nodiscard]] world_event status() const;
  /// As world::epoch().
  [[nodiscard]] troupe::epoch epoch() const { return status().epoch; }

  /// As world::allocate().
  [[nodiscard]] buffer allocate(rank where, std::size_t size_bytes) const;
  /// As world::allocate_pinned().
  [[nodiscard]] buffer allocate_pinned(std::size_t size_bytes) const;
  /// As world::device_of().
  [[nodiscard]] const std::shared_ptr<device>& device_of(rank where) const;

  /// As troupe::world's. What names no epoch is for the present one where it asks all ranks, and for the first where it
  /// asks one. Errors: invalid_argument (no such rank).
  [[nodiscard]] virtual_reply ask(std::vector<operation> parts, nanoseconds deadline = world_default_deadline);
  [[nodiscard]] virtual_reply ask(world_request asked);
  [[nodiscard]] virtual_reply ask(rank whom, operation what, lane in = {},
                                  nanoseconds deadline = world_default_deadline);
  [[nodiscard]] virtual_reply ask(rank whom, rank_request asked);
  [[nodiscard]] virtual_reply ask(retry_safe_mark mark, std::vector<operation> parts,
                                  nanoseconds deadline = world_default_deadline);
  [[nodiscard]] virtual_reply ask(retry_safe_mark mark, rank whom, operation what, lane in = {},
                                  nanoseconds deadline = world_default_deadline);
  /// As world::retries().
  [[nodiscard]] retry_counts retries() const;
  /// As world::all_reduce().
  [[nodiscard]] virtual_reply all_reduce(std::span<const buffer> send, std::span<const buffer> recv, std::size_t count,
                                         dtype type, reduction op);
  /// As world::barrier().
  [[nodiscard]] virtual_reply barrier();
  /// As world::copy().
  [[nodiscard]] virtual_reply copy(rank whom, buffer from, buffer to);

  /// As troupe::world's: time passes until it is done. Errors: those, and deadline_exceeded (it is not within an hour).
  void register_memory(std::size_t size_bytes);
  /// As world::allocate_all().
  [[nodiscard]] std::vector<buffer> allocate_all(std::size_t size_bytes) const;
  /// The same. \p function is called while time passes, on the test's own thread like all else.
  [[nodiscard]] std::shared_ptr<captured_plan> capture(capture_function function, plan_options options = {});
  [[nodiscard]] std::shared_ptr<captured_plan> capture(plan_steps steps, plan_options options = {});
  /// As world::replay().
  [[nodiscard]] virtual_reply replay(const std::shared_ptr<captured_plan>& plan,
                                     nanoseconds deadline = world_default_deadline);

  /// Since the world's beginning.
  [[nodiscard]] nanoseconds now() const;
  /// Lets \p span pass.
  void advance(nanoseconds span);
  /// Lets time pass until \p enough, which is asked after each turn, for \p at_most. Returns whether it was.
  [[nodiscard]] bool run_until(const std::function<bool()>& enough, nanoseconds at_most);
  /// The same until the world is ready in \p wanted or a later epoch.
  [[nodiscard]] bool run_until_ready(troupe::epoch wanted, nanoseconds at_most);
  /// Everything is later by \p span at once, as after the machine has slept.
  void jump(nanoseconds span);

  /// As if the actor of \p whom had been killed.
  void end_rank(rank whom);
  /// Asks the world to stop, and lets time pass until it has, for \p at_most. Returns whether it has.
  [[nodiscard]] bool stop(nanoseconds at_most);

  /// All so far, from "forming" on.
  [[nodiscard]] const std::vector<virtual_event>& events() const noexcept;
  /// What goes wrong, and what was launched.
  [[nodiscard]] fault_script& script() noexcept;
  /// The pretended devices.
  [[nodiscard]] mock_driver& devices() noexcept;
  /// Times that something waited which must not (BLK-1): 0, or a bug of troupe's.
  [[nodiscard]] std::size_t forbidden_waits() const;

private:
  class stage;

  [[nodiscard]] std::shared_ptr<captured_plan> capture(const capture_request& asked);

  std::unique_ptr<stage> stage_;
};

} // namespace troupe::testing
