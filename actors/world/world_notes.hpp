/// What a world is told by its own parts.
#pragma once

#include <troupe/actors/control/control_messages.hpp>
#include <troupe/actors/world/restoration.hpp>
#include <troupe/collectives/order/absence_report.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>
#include <memory>
#include <variant>

namespace troupe {

/// From helpers and pipelines: what happened to one rank of one epoch (EPO-1).
struct rank_report {
  /// What has become of the rank.
  enum class kind : std::uint8_t {
    formed,
    faulted,
    late, ///< A request has no outcome at its deadline: nothing has failed.
    closed,
    drained,
    released,
    maintained
  };
  kind what = kind::formed;
  troupe::rank rank;
  troupe::epoch epoch;
  error failure; ///< errc::none when it went well.
};

/// From itself: the delay before its next epoch is over.
struct rebuild_due {
  troupe::epoch failed;
};

/// From the arbiter: an operation's peers are late.
struct straggling_report {
  std::shared_ptr<const absence_report> report;
};

/// From helpers: what became of something that was to come back with the epoch.
struct restored_report {
  troupe::epoch epoch;
  restored_part what;
};

/// From the world's controller, where it spans processes.
struct guidance {
  std::variant<formation_order, failure_order, quiesce_order, fence_notice, stop_order> what;
};

using world_note = std::variant<rank_report, rebuild_due, straggling_report, restored_report, guidance>;

} // namespace troupe
