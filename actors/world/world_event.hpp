/// What a world tells about itself.
#pragma once

#include <troupe/actors/world/recovery_ladder.hpp>
#include <troupe/actors/world/restoration.hpp>
#include <troupe/collectives/order/retry_counts.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// What a world does now.
enum class world_phase : std::uint8_t {
  forming,    ///< Ranks are meeting; requests are rejected.
  ready,      ///< Requests are served.
  rebuilding, ///< After a fault, until the ranks meet again; requests are rejected with its reason.
  failed,     ///< Closed after a fault; requests are rejected with its reason.
  stopping,   ///< No new requests; those in flight are finishing.
  stopped,    ///< Everything has been given back.
};

/// Name of \p phase as written above.
[[nodiscard]] std::string_view to_string(world_phase phase) noexcept;

struct absence_report;
struct fault_report;

/// A rank that its world goes on without.
struct lost_rank {
  rank origin;             ///< What it was called in the first epoch.
  troupe::epoch last_in{}; ///< The last epoch that it was part of.
};

/// One try to come back from a fault.
struct recovery_try {
  recovery_rung rung{};
  nanoseconds took{}; ///< From the fault, or the end of the try before, until it was ready or had failed.
  error failure{};    ///< Why it was not the last; errc::none of the one that succeeded.
};

/// Sent to subscribers at every change of phase, in order, when it is suspended or resumed, when an operation's peers
/// are late, and when something has come back that belongs to the world.
struct world_event {
  world_phase phase = world_phase::forming;
  troupe::epoch epoch;
  int world_size = 0;
  std::vector<rank> local_ranks; ///< Those of this process, ascending.
  error reason;                  ///< Why it failed or is rebuilt; errc::none otherwise.
  /// An operation that some ranks have asked for and others not, for longer than limits.straggling.
  std::shared_ptr<const absence_report> straggling{};
  /// Where every rank of this process stood: of `reason`, or of a request whose deadline has passed in flight, which is
  /// no change of phase.
  std::shared_ptr<const fault_report> report{};
  /// Which rank of the first epoch each of local_ranks was: ranks are numbered anew, in their old order, when a world
  /// goes on without some of them.
  std::vector<rank> origins{};
  std::vector<lost_rank> lost{}; ///< Those it goes on without, in the order of their loss.
  /// Of `ready` after a fault, and of `failed`: what was tried, in order; the last brought it back.
  std::shared_ptr<const std::vector<recovery_try>> recovery{};
  /// Of `ready`: what else has come back since the last fault. Null where there is nothing such. What is under way is
  /// told of by one more event, without a change of phase, when all of it has ended.
  std::shared_ptr<const restoration> restored{};

  /// Whether it serves with fewer ranks than it began with.
  [[nodiscard]] bool is_degraded() const noexcept { return !lost.empty(); }
  /// Its communicators' device memory has been given back: requests wait until it is resumed.
  bool is_suspended = false;
  /// What has become of requests marked retry_safe, by now.
  retry_counts retries{};
};

/// One line for people.
[[nodiscard]] std::string describe(const world_event& event);

} // namespace troupe
