/// Defines the notes that a world receives from its own parts.
#pragma once

#include <troupe/actors/control/control_messages.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/order/absence_report.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>
#include <memory>
#include <variant>

namespace troupe {

/// From helpers and pipelines: an event of one rank in one epoch (EPO-1).
struct rank_report {
  /// The kind of event.
  enum class kind : std::uint8_t {
    formed,
    faulted,
    late, ///< A request has no outcome at its deadline; this alone is not a failure.
    closed,
    drained,
    released,
    maintained
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

/// From the controller of a world that spans processes.
struct controller_directive {
  std::variant<formation_order, failure_order, quiesce_order, fence_notice, stop_order> what;
};

using world_note = std::variant<rank_report, rebuild_due, straggling_report, restored_report, controller_directive>;

} // namespace troupe
