/// Defines a world in virtual time on the test's own thread: it makes progress only while the test lets time pass. Also
/// the reply to a request there.
#pragma once

#include <troupe/actors/world/recovery/recovery_terms.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/collective_settings.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/collective_methods.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/completion_settings.hpp>
#include <troupe/completion/reply/outcome.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/per_rank.hpp>
#include <troupe/testing/fault_script.hpp>
#include <troupe/testing/memory.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {
struct capture_request;
class mock_driver;
} // namespace troupe

namespace troupe::testing {

/// Like std::future<completion>, but waiting lets the world continue. Copies refer to one reply. Threads: only that of
/// its world.
class virtual_reply {
public:
  /// Returns a reply and the promise that answers it.
  [[nodiscard]] static std::pair<reply_promise, virtual_reply> make();

  /// Returns whether it has been answered. No time passes.
  [[nodiscard]] bool is_ready() const;
  /// Returns the outcome. No time passes. Errors: invalid_argument (not answered yet: let time pass first).
  [[nodiscard]] outcome result() const;
  /// Returns the virtual time of the answer. Errors: those of result().
  [[nodiscard]] time_point answered_at() const;

  /// Lets time pass until the answer arrives, for at most one virtual hour, and returns it like a future: throws
  /// troupe::exception if the answer is an error. May be called again. Errors: deadline_exceeded (no answer within an
  /// hour).
  completion get() const; // NOLINT(modernize-use-nodiscard)
  /// Lets time pass until the answer arrives, for at most \p at_most.
  std::future_status wait_for(nanoseconds at_most) const; // NOLINT(modernize-use-nodiscard)

private:
  struct state;
  explicit virtual_reply(std::shared_ptr<state> of) noexcept : state_{std::move(of)} {}

  std::shared_ptr<state> state_;
};

/// The options of a virtual world. The defaults are those of a runtime, except that all time limits are far shorter.
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
  std::size_t memory_bytes = std::size_t{16} << 20U; ///< The memory of each device.
  /// Determines which of several possible steps at one moment comes first, and the delays of messages to the world.
  /// Empty: the first possible step, and no delays. A test that passes with many seeds passes with more than one
  /// schedule.
  std::optional<std::uint64_t> seed{};
  /// The script of faults, in effect from the world's forming on. Empty: the world creates one.
  std::shared_ptr<fault_script> script{};
};

/// An event with its time since the beginning of the world.
struct virtual_event {
  nanoseconds at{};
  world_event event;
};

/// Returns text of the form "at 52 ms: ", and the event.
[[nodiscard]] std::string describe(const virtual_event& one);

/// The functions that virtual_world and actor_world have in common.
class world_in_virtual_time {
public:
  virtual ~world_in_virtual_time() = default;

  /// Same as world::size(): the size in the current epoch.
  [[nodiscard]] int size() const { return status().world_size; }
  /// Same as world::local_ranks().
  [[nodiscard]] std::vector<rank> local_ranks() const { return status().local_ranks; }
  /// Same as world::status().
  [[nodiscard]] world_event status() const;
  /// Same as world::epoch().
  [[nodiscard]] troupe::epoch epoch() const { return status().epoch; }
  /// Same as world::device_of().
  [[nodiscard]] const std::shared_ptr<device>& device_of(rank where) const;

  /// Same as world::allocate().
  [[nodiscard]] buffer allocate(rank where, std::size_t size_bytes) const;
  /// Same as world::allocate_pinned().
  [[nodiscard]] buffer allocate_pinned(std::size_t size_bytes) const;
  /// Same as world::register_memory(): time passes until it is done. Errors: also deadline_exceeded (not done within an
  /// hour).
  void register_memory(std::size_t size_bytes);
  /// Same as world::allocate_all().
  [[nodiscard]] per_rank<buffer> allocate_all(std::size_t size_bytes) const;
  /// Same as mock_world::make_ranked().
  [[nodiscard]] std::vector<buffer> make_ranked(std::size_t count) const {
    return testing::make_ranked<float>(*this, count);
  }

  /// Lets time pass until \p enough returns true, for at most \p at_most. \p enough is called after each turn. Returns
  /// whether it did.
  [[nodiscard]] bool run_until(const std::function<bool()>& enough, nanoseconds at_most);
  /// Lets time pass until the world is ready in \p wanted or a later epoch, for at most \p at_most. Returns whether it
  /// is.
  [[nodiscard]] bool run_until_ready(troupe::epoch wanted, nanoseconds at_most);
  /// Same as world::wait_ready(): time passes meanwhile.
  world_event wait_ready(troupe::epoch after, nanoseconds at_most);

  /// Returns all events so far, from "forming" on.
  [[nodiscard]] const std::vector<virtual_event>& events() const noexcept;
  /// Returns the fault script, which also records the launches.
  [[nodiscard]] fault_script& script() noexcept;
  /// Returns the simulated devices.
  [[nodiscard]] mock_driver& devices() noexcept;

protected:
  class core;
  world_in_virtual_time() = default;

private:
  [[nodiscard]] virtual core& shared() const noexcept = 0;
};

/// A world over the mock backend, without actors and threads: its parts take turns on the calling thread. A request
/// never waits (BLK-1): the reply arrives while time passes, in advance(), run_until() or virtual_reply::get(). The
/// same calls give the same run (DET-1). The functions that clients of troupe::world call have the same names here, so
/// that a client that is a template of its world can be tested in virtual time.
///
/// Time: steady_now() returns the virtual time. It stands still while any work can be done, then jumps to the next
/// event.
/// Lifetime: one at a time per thread. That thread must not use a world in real time meanwhile. Buffers of the world
/// may outlive it; the thread cannot have another virtual world until they are destroyed.
/// Threads: only the one that constructed it.
class virtual_world : public world_in_virtual_time,
                      public collective_methods<virtual_world, arguments_of_all, virtual_reply> {
public:
  /// Forms a world. Returns when it is ready or has failed: see status(). Errors: invalid_argument (options, or another
  /// virtual world on this thread).
  explicit virtual_world(int ranks, virtual_options options = {});
  virtual_world(const virtual_world&) = delete;
  virtual_world& operator=(const virtual_world&) = delete;
  /// Stops the world: hanging operations are released, and all pending requests are answered.
  ~virtual_world() override;

  /// Same as world::ask(). Without an epoch, a request to all ranks uses the current epoch, and a request to one rank
  /// uses the first one. Errors: invalid_argument (no such rank).
  [[nodiscard]] virtual_reply ask(std::vector<operation> parts, request_options options = {},
                                  call_site from = call_site::current());
  [[nodiscard]] virtual_reply ask(world_request asked);
  [[nodiscard]] virtual_reply ask(rank target, operation what, request_options options = {});
  [[nodiscard]] virtual_reply ask(rank target, rank_request asked);
  /// Same as world::copy().
  [[nodiscard]] virtual_reply copy(rank target, operand from, operand to, request_options options = {});

  /// Same as world::capture(): time passes until it is done. \p function is called meanwhile, on the test's own thread.
  [[nodiscard]] std::shared_ptr<captured_plan> capture(capture_function function, plan_options options = {});
  [[nodiscard]] std::shared_ptr<captured_plan> capture(plan_steps steps, plan_options options = {});

  /// Returns the virtual time since the world began.
  [[nodiscard]] nanoseconds now() const;
  /// Lets \p span of virtual time pass.
  void advance(nanoseconds span);
  /// Advances the clock by \p span at once, as after a suspended machine resumes.
  void jump(nanoseconds span);

  /// Ends the actor of \p target, as if it had been killed.
  void end_rank(rank target);
  /// Asks the world to stop, and lets time pass until it has, for at most \p at_most. Returns whether it has.
  [[nodiscard]] bool stop(nanoseconds at_most);

  /// Returns the number of waits in code that must not wait (BLK-1). Any number but 0 is a defect of troupe.
  [[nodiscard]] std::size_t forbidden_waits() const;

private:
  class impl;

  [[nodiscard]] core& shared() const noexcept override;
  [[nodiscard]] std::shared_ptr<captured_plan> capture(const capture_request& asked);

  std::unique_ptr<impl> impl_;
};

} // namespace troupe::testing

extern template class troupe::collective_methods<troupe::testing::virtual_world, troupe::arguments_of_all,
                                                 troupe::testing::virtual_reply>;
