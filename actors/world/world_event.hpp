/// Defines the events by which a world reports its state, and the changes of its ranks that can be asked for.
#pragma once

#include <troupe/actors/world/recovery/recovery_terms.hpp>
#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/progress/resume_points.hpp>
#include <troupe/device/enum_names.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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

// Planned changes of the ranks of a world over processes.

/// The kinds of a rank_change.
enum class rank_change_kind : std::uint8_t {
  none,  ///< Nothing changes: only the answer is wanted.
  leave, ///< One process leaves the world.
  drain, ///< All processes of a host leave the world, spares included.
  join,  ///< A process is to take a free place.
};
template <>
inline constexpr std::array<std::string_view, 4> enum_names<rank_change_kind>{"none", "leave", "drain", "join"};

/// A request to the controller of a world for a planned change of its ranks (docs/processes.md). It is answered once:
/// when the change is done, with the processes that the world has then, or with the reason why it is refused or could
/// not be made, and then nothing has changed. A process that leaves is no rank any more when the answer is sent, and
/// its world stops. Errors: invalid_argument (what it names does not exist; too few ranks would remain; without
/// `renumbers`, ranks would get other numbers; the place has a process), rebuilding (the world does not serve now),
/// deadline_exceeded (no process has joined), stopping, unsupported.
struct rank_change {
  rank_change_kind kind = rank_change_kind::none;
  /// leave: the place of the process; nullopt: the process that asks. join: the place; nullopt: the first that is free.
  std::optional<int> place{};
  std::string host{};     ///< drain: the host, as world_process names it.
  bool renumbers = false; ///< leave, drain: whether ranks that stay may get other numbers.
};

/// A process of a world over processes.
struct world_process {
  std::string name{}; ///< The launcher's name for it, else its host and process id.
  std::string host{};
  std::int64_t pid = 0;
  std::optional<int> place{};         ///< Its place; nullopt: it stands by.
  std::optional<troupe::rank> self{}; ///< Its rank in the present epoch, if any.
  bool is_leaving = false;            ///< It leaves as planned.
  /// It is not connected to the controller, which expects it to return: it may still serve.
  bool is_away = false;
};
using world_processes = std::vector<world_process>;

} // namespace troupe
