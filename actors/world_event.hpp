/// What a world tells about itself.
#pragma once

#include <troupe/collectives/sequencing/retry_counts.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

enum class world_phase : std::uint8_t {
  forming,    ///< Ranks are meeting; requests are rejected.
  ready,      ///< Requests are served.
  rebuilding, ///< After a fault, until the ranks meet again; requests are rejected with its reason.
  failed,     ///< Closed after a fault; requests are rejected with its reason.
  stopping,   ///< No new requests; those in flight are finishing.
  stopped,    ///< Everything has been given back.
};

[[nodiscard]] std::string_view to_string(world_phase phase) noexcept;

struct absence_report;
struct fault_report;

/// Sent to subscribers at every change of phase, in order, and when an operation's peers are late.
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
  /// What has become of requests marked retry_safe, by now.
  retry_counts retries{};
};

/// One line for people.
[[nodiscard]] std::string describe(const world_event& event);

} // namespace troupe
