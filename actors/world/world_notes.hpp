/// Defines the notes that a world receives from its own components.
#pragma once

#include <troupe/actors/world/controller_directives.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/order/remote_ranks.hpp>
#include <troupe/collectives/order/world_order.hpp>
#include <troupe/collectives/progress/absence_report.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

namespace troupe {

/// From helpers and pipelines: an event of one rank in one epoch (EPO-1).
struct rank_report {
  /// The kind of event.
  enum class kind : std::uint8_t {
    formed,
    faulted,
    late, ///< A request has no outcome at its deadline; this alone is not a failure.
    drained,
    released,
    maintained,
    prepared,    ///< The communicator of a prepared epoch has formed.
    held,        ///< The process's requests to the whole world have been answered, and later ones are held.
    handed_over, ///< The order of the former epoch has passed on what it held (world_order::hand_over()).
  };
  kind what = kind::formed;
  troupe::rank rank;
  troupe::epoch epoch;
  error failure; ///< errc::none on success.
};

/// From the world itself: the delay before its next epoch is over.
struct rebuild_due {
  troupe::epoch failed;
};

/// From the arbiter: an operation's peers are late.
struct straggling_report {
  std::shared_ptr<const absence_report> report;
};

/// From helpers: the result of restoring one part of the world in the epoch.
struct restored_report {
  troupe::epoch epoch;
  restored_part what;
};

/// From the order of a world over processes: it is the turn of a piece of maintenance, or its turn was refused.
struct maintenance_turn {
  troupe::epoch epoch;
  std::uint64_t number = 0;           ///< Assigned by the executor.
  error refusal;                      ///< Why it was refused; errc::none: the ranks hold their requests.
  std::vector<opened_world> opened{}; ///< For a split: the sub-worlds of the local rank.
};

/// From the order of a world: client requests are served again after a piece of maintenance.
struct maintenance_over {
  troupe::epoch epoch;
};

/// From the order of a world over processes: another process asks for a capture of steps of the local rank.
struct peer_capture {
  troupe::epoch epoch;
  std::vector<operation> steps;
  plan_options options;
  error objection; ///< Why the rank cannot capture them; errc::none if it can.
  rank_services::captured done;
};

using world_note = std::variant<rank_report, rebuild_due, straggling_report, restored_report, maintenance_turn,
                                maintenance_over, peer_capture, controller_directive>;

} // namespace troupe
