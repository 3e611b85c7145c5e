/// Reports the state of all ranks after a fault or an expired deadline in a world, and the suspected ranks.
#pragma once

#include <troupe/collectives/progress/absence_report.hpp>
#include <troupe/device/enum_names.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class rank_pipeline;

/// The reason why a rank is suspected.
enum class suspicion : std::uint8_t {
  reported,     ///< The rank reported a failure of its own.
  not_asked,    ///< Other ranks have launched an operation that no client has requested from this rank.
  not_launched, ///< The rank's launcher has not launched a requested operation that others have launched.
  stuck_launch, ///< The rank's launch call has not returned, while those of other ranks have.
  not_started,  ///< The rank has launched an operation that others run, but its device waits for earlier work.
  runs_other,   ///< The rank's device is still busy with a different operation.
  unfinished,   ///< The rank's device has not finished an operation that most other ranks have finished.
  alone_done,   ///< The rank has finished an operation in which most others wait: its part may never have run.
  absent_peer,  ///< Another rank waits for this rank in a send or recv.
  named,        ///< The fault names the rank: it is in another process, or the controller has determined it.
};

/// A rank that may have caused a fault.
struct suspect {
  troupe::rank rank{};
  suspicion why{};
  std::string reason{}; ///< For users: "it has been asked for 17 collectives, and ranks 0, 2 wait in the 18th".
};

/// The state of the ranks of this process, and the suspects.
struct fault_report {
  /// The state of one rank.
  struct standing {
    troupe::rank rank{};
    device_id device{};
    /// `progress.submitted` is the last request that the rank was asked for.
    pipeline_progress progress{};
    std::size_t in_flight = 0; ///< Requests without outcome, and failed ones whose buffers are still held.
    error fault{};             ///< Reported by the rank itself; errc::none if it reported none.
    std::string last_error{};  ///< The last error of the communicator's library (library_diagnostics).
  };

  error fault{};           ///< The fault that the report is about.
  bool is_verdict = false; ///< Whether the controller has determined the rank that the fault names.
  std::uint64_t world = 0;
  troupe::epoch epoch{};
  int world_size = 0;
  time_point taken{};                ///< Time of the report, by the clock of `progress`.
  std::vector<standing> ranks{};     ///< The ranks of this process, ascending.
  std::vector<suspect> suspects{};   ///< The suspects that judge() returns.
  std::string remark{};              ///< The reason if there is no suspect.
  std::vector<std::string> asking{}; ///< Shell commands that query the communicators' libraries.
};

/// The fault, world and epoch that a report is about.
struct fault_scope {
  error fault{};
  std::uint64_t world = 0;
  troupe::epoch epoch{};
  int world_size = 0;
  bool is_verdict = false; ///< See fault_report.
};

/// Reads the state of \p pipelines, which are those of this process in rank order, and determines the suspects. Call it
/// before a fault makes the other ranks fail, because they report the same fault afterwards.
/// Threads: any. Waits for no launcher, device or peer (BLK-1).
[[nodiscard]] std::shared_ptr<const fault_report>
take_fault_report(fault_scope scope, std::span<const std::shared_ptr<rank_pipeline>> pipelines, time_point now);

/// Returns the fault of \p report for clients. If other ranks are suspected than the one that has noticed it, the text
/// says so, and the fault names the suspect, if it is the only one.
[[nodiscard]] error fault_of(const fault_report& report);

/// Returns one line: the fault, the suspected ranks with reasons, and the state of at most eight ranks, suspects first.
[[nodiscard]] std::string describe(const fault_report& report);

} // namespace troupe
