/// Defines what the controller of a world over processes directs its processes to do, and what their worlds report to
/// it. For a sub-world, its parent world is the controller.
#pragma once

#include <troupe/collectives/progress/resume_points.hpp>
#include <troupe/collectives/progress/told_commits.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace troupe {

/// Controller → process: send a commits_report. The process's earlier epochs have ended; epoch `of` is to form.
struct commits_wanted {
  epoch of;
};
/// Controller → process: form this epoch. Requests of the previous epoch fail with `reason`, unless they have failed
/// already.
struct formation_directive {
  epoch of;
  rank self;
  int world_size = 1;
  unique_id id{};
  error reason{};                   ///< Why the previous epoch ended; errc::none for the first.
  bool has_newcomers = false;       ///< Whether some process was not part of the previous epoch.
  std::vector<std::string> hosts{}; ///< The host of each rank.
  std::vector<std::string> names{}; ///< The name of each rank's process.
  bool has_rings = false;           ///< Whether the process has been sent rings for its requests in this epoch.
  bool is_on_one_node = false;      ///< Whether all ranks have been sent rings by the same order service.
  /// Where the lanes stood when the previous epoch ended; null if there was none.
  std::shared_ptr<const resume_points> resume{};
};
/// Controller → process: the epoch has failed at some rank. The outcome of its unanswered requests is unknown. May
/// overtake decisions in rings: what this rank has not launched is rejected, and what its peers have launched fails.
struct failure_directive {
  epoch of;
  error why;
};
/// Controller → process: form this epoch's communicator beside the serving one, and answer with a formed_report. The
/// formation_directive for it follows if all ranks can, else a drop_directive (docs/design/0117-planned-change.md).
struct prepare_directive {
  epoch of;
  rank self;
  int world_size = 1;
  unique_id id{};
  std::vector<std::string> hosts{}; ///< As in formation_directive.
  bool is_on_one_node = false;      ///< Whether the controller expects that of the epoch: see formation_directive.
};
/// Controller → process: hold requests to the whole world that arrive from now on in epoch `of`, and answer with a
/// held_report when those before have been answered.
struct hold_directive {
  epoch of;
};
/// Controller → process: the prepared epoch `of` does not begin. Serve the held requests in the present one.
struct drop_directive {
  epoch of;
};
/// Controller → process: accept no more requests, finish those in flight, and report it. Another epoch follows without
/// a fault.
struct quiesce_directive {
  epoch of;
  error why; ///< The error for requests that arrive meanwhile.
  /// Number of batches of decisions for the process's rank in this epoch. They may come through rings, later than this
  /// message. The process must follow all of them before it refuses undecided requests: its peers launch the released
  /// ones, and would wait for it.
  std::uint64_t decided = 0;
  /// Whether requests are held for the next epoch instead of refused: the order has stopped without deciding them.
  bool is_planned = false;
};
/// Controller → process: the process no longer belongs to the world, and its session has ended. May overtake decisions
/// in rings, as failure_directive.
struct fence_notice {
  error why;
};
/// Controller → process: the world ends; without a fault if `why` is errc::stopping.
struct stop_directive {
  error why;
  std::uint64_t decided = 0; ///< As in quiesce_directive, for the process's latest epoch.
};

/// A message from the controller.
struct controller_directive {
  std::variant<commits_wanted, formation_directive, failure_directive, quiesce_directive, fence_notice, stop_directive,
               prepare_directive, hold_directive, drop_directive>
      what;
};

/// Process → controller, the answer to commits_wanted: the commits that the process knows, of all epochs before `of`.
struct commits_report {
  epoch of;
  told_commits told{};
};
/// Process → controller: its rank has formed epoch `of`, or has prepared it.
struct formed_report {
  epoch of;
};
/// Process → controller: its rank failed in epoch `of`, while preparing or forming it, or later.
struct failed_report {
  epoch of;
  error why;
  std::vector<rank> blamed{}; ///< The ranks that the process's own fault report blames.
};
/// Process → controller, after quiesce_directive: no operation is in flight in this process.
struct drained_report {
  epoch of;
  std::uint64_t succeeded = 0; ///< Number of the rank's requests that have succeeded, in the order of release.
};
/// Process → controller, after hold_directive: its requests to the whole world in epoch `of` have been answered.
struct held_report {
  epoch of;
};
/// Process → controller: the process leaves because of `why`; errc::none: it has finished its work.
struct leave_notice {
  error why;
};

using member_report =
    std::variant<commits_report, formed_report, failed_report, drained_report, leave_notice, held_report>;

} // namespace troupe
