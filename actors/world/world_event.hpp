/// Defines the events by which a world reports its state.
#pragma once

#include <troupe/actors/world/recovery/recovery_terms.hpp>
#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/progress/resume_points.hpp>
#include <troupe/device/enum_names.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The kinds of state, besides the ranks, that a world restores after a fault.
enum class restored_kind : std::uint8_t {
  registration, ///< Memory that is registered again while the ranks form.
  plan,         ///< A plan that is captured again after the ranks have formed, while requests are served.
  sub_world,    ///< A sub-world, which recovers by itself, independently of its parent.
};
template <>
inline constexpr std::array<std::string_view, 3> enum_names<restored_kind>{"registration", "plan", "sub-world"};

/// The progress of a restoration.
enum class restored_state : std::uint8_t {
  under_way, ///< Another event will report the result.
  back,
  lost, ///< It was not restored; see `failure`.
};
template <>
inline constexpr std::array<std::string_view, 3> enum_names<restored_state>{"under way", "back", "lost"};

/// One restored or lost part.
struct restored_part {
  restored_kind kind{};
  /// The number of the part. Registrations: from 0, in the order of the requests. Plans: captured_plan::number().
  /// Sub-worlds of this process: from 0, in the order of the splits.
  std::uint64_t number = 0;
  std::string name{}; ///< The group name of a sub-world, or the name of a plan over processes; else empty.
  restored_state state = restored_state::under_way;
  /// Duration by the world's clock. Registrations and plans: from the start of the first rank to the end of the last.
  /// Sub-worlds: from the fault until it was ready or was given up. 0 while under way.
  nanoseconds took{};
  error failure{};
};

/// The restored and lost parts of a world: registrations first, then plans, then sub-worlds in the order of their
/// reports.
using restoration = std::vector<restored_part>;

/// The totals of all restored parts of one kind.
struct restored_sum {
  std::size_t back = 0;
  std::size_t lost = 0;
  std::size_t under_way = 0;
  nanoseconds took{}; ///< Sum of the durations of all restored parts.
  nanoseconds slowest{};
};
/// Returns the totals of the parts of \p kind.
[[nodiscard]] restored_sum sum_of(const restoration& all, restored_kind kind) noexcept;

/// Returns a human-readable text; empty if nothing was restored:
/// "1 registration in 0.2 ms, 3 plans in 1.5 ms (the slowest in 0.9 ms), 1 plan not (internal: …), sub-world left in
/// 40.2 ms".
[[nodiscard]] std::string describe(const restoration& all);

/// Formats \p span as "12.3 ms".
[[nodiscard]] std::string in_tenths_of_milliseconds(nanoseconds span);

/// The phase of a world.
enum class world_phase : std::uint8_t {
  forming,    ///< The ranks create their communicators; requests are rejected.
  ready,      ///< Requests are served.
  rebuilding, ///< After a fault, until the ranks have formed again; requests are rejected with its reason.
  failed,     ///< Closed after a fault; requests are rejected with its reason.
  stopping,   ///< No new requests; those in flight are finishing.
  stopped,    ///< All resources have been released.
};

struct absence_report;
struct fault_report;

/// A rank that has been excluded from its world.
struct lost_rank {
  rank origin;             ///< Its number in the first epoch.
  troupe::epoch last_in{}; ///< The last epoch that it was part of.
};

/// One attempt to recover from a fault.
struct recovery_try {
  recovery_rung rung{};
  /// From the fault, or the end of the previous attempt, until the world was ready or the attempt had failed.
  nanoseconds took{};
  error failure{}; ///< Why the attempt failed; errc::none if it succeeded.
};

/// Sent to subscribers, in order, at every change of phase, when the world is suspended or resumed, when an operation's
/// peers are late, and when a part of the world has been restored.
struct world_event {
  world_phase phase = world_phase::forming;
  troupe::epoch epoch{};
  int world_size = 0;
  std::vector<rank> local_ranks{}; ///< The ranks of this process, ascending.
  error reason;                    ///< Why it failed or is rebuilt; errc::none otherwise.
  /// An operation that some ranks have requested and others have not, for longer than limits.straggling.
  std::shared_ptr<const absence_report> straggling{};
  /// The progress of every rank of this process at the fault `reason`, or when the deadline of a request in flight
  /// passed. The latter does not change the phase.
  std::shared_ptr<const fault_report> report{};
  /// For each of local_ranks, its number in the first epoch. When a world continues without some ranks, the others are
  /// renumbered in their old order.
  std::vector<rank> origins{};
  std::vector<lost_rank> lost{}; ///< The excluded ranks in the order of their loss.
  /// In `ready` after a fault and in `failed`: the attempts in order. In `ready` the last one succeeded.
  std::shared_ptr<const std::vector<recovery_try>> recovery{};
  /// In `ready`: the parts besides the ranks that have been restored since the last fault; null if there are none. When
  /// all parts that are under way have ended, one more event without a change of phase reports them.
  std::shared_ptr<const restoration> restored{};

  /// Returns whether the world serves with fewer ranks than it began with.
  [[nodiscard]] bool is_degraded() const noexcept { return !lost.empty(); }
  /// Whether the world is suspended: the device memory of its communicators has been released, and requests wait until
  /// it is resumed.
  bool is_suspended = false;
  /// In `ready`, from the second epoch on: where the lanes stood when the previous epoch ended, the same at every rank.
  /// null in the first epoch, under ordering `caller`, and, in a world over processes whose controller was restarted,
  /// if none of its processes was part of an earlier epoch.
  std::shared_ptr<const resume_points> resume{};
  /// In `ready`: what this epoch has of one-shot kernels, or why it has none. null if limits.one_shot_bytes is 0, and
  /// in a world of one rank.
  std::shared_ptr<const one_shot_status> one_shot{};
};

/// Returns whether \p now is ready in an epoch later than \p after, or has failed, stops or has stopped: there is
/// nothing to wait for.
[[nodiscard]] bool is_ready_after(const world_event& now, epoch after) noexcept;

/// Returns one human-readable line.
[[nodiscard]] std::string describe(const world_event& event);

} // namespace troupe
