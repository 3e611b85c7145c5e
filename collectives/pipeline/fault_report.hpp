/// Reports the state of every rank at a fault or a passed deadline of a world, and the suspected ranks.
#pragma once

#include <troupe/collectives/order/absence_report.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class rank_pipeline;

/// The last requests of a rank; nullopt if there was none yet.
struct pipeline_progress {
  /// Counts of operations that need all ranks, from the first of the epoch. Ranks are compared by these, because the
  /// numbers of their other operations differ.
  struct counts {
    std::uint64_t submitted = 0;
    std::uint64_t launched = 0;
    std::uint64_t finished = 0;
  };

  std::optional<operation_mark> submitted{};
  std::optional<operation_mark> launched{};
  std::optional<operation_mark> started{};  ///< The last that the device was seen to begin.
  std::optional<operation_mark> finished{}; ///< With success.
  counts collectives{};
  std::optional<time_point> running_since{};   ///< Start of `started`, if it has not finished.
  std::optional<time_point> launching_since{}; ///< Start of a launch call that has not returned.
};

/// Why a rank is suspected.
enum class suspicion : std::uint8_t {
  reported,     ///< It reported a failure of its own.
  not_asked,    ///< No client has asked it for what others have launched.
  not_launched, ///< It was asked for that, and its launcher has not reached it.
  stuck_launch, ///< Its launch call has not returned, while those of others have.
  not_started,  ///< It has launched what others run, and its device waits for something before it.
  runs_other,   ///< Its device is still busy with an operation of its own.
  unfinished,   ///< Its device has not finished what most others have finished.
  alone_done,   ///< It has finished an operation in which most others still wait: its part may never have run.
  absent_peer,  ///< Another rank waits for it in a send or recv.
};
/// Returns the name of \p why as written above.
[[nodiscard]] std::string_view to_string(suspicion why) noexcept;

/// A suspected rank.
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
    /// Its `submitted` is the last request asked of the rank.
    pipeline_progress progress{};
    std::size_t in_flight = 0; ///< Requests without outcome, and failed ones whose buffers are still held.
    error fault{};             ///< Reported by the rank itself; errc::none if it reported none.
    std::string last_error{};  ///< From its communicator's library (library_words).
  };

  error fault{}; ///< The fault that the report is about.
  std::uint64_t world = 0;
  troupe::epoch epoch{};
  int world_size = 0;
  time_point taken{};                ///< By the world's clock, as the times of `progress`.
  std::vector<standing> ranks{};     ///< Ranks of this process, ascending.
  std::vector<suspect> suspects{};   ///< As judge() finds them.
  std::string remark{};              ///< If there is no suspect: why.
  std::vector<std::string> asking{}; ///< Commands that ask the communicators' libraries for their state.
};

/// The fault, world and epoch that a report is about.
struct fault_scope {
  error fault{};
  std::uint64_t world = 0;
  troupe::epoch epoch{};
  int world_size = 0;
};

/// Reads the state of \p pipelines, which are those of this process in rank order, and judges. Call it before ranks are
/// failed because of another rank's fault, since they report that fault afterwards.
/// Threads: any. Waits for no launcher, device or peer (BLK-1).
[[nodiscard]] std::shared_ptr<const fault_report>
take_fault_report(fault_scope scope, std::span<const std::shared_ptr<rank_pipeline>> pipelines, time_point now);

/// Returns one line: what happened, which ranks are suspected and why, and the state of the ranks. Of many ranks it
/// describes eight, suspects first.
[[nodiscard]] std::string describe(const fault_report& report);

} // namespace troupe
