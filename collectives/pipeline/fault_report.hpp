/// Where every rank stood when a world had a fault or a deadline passed, and which rank is to be suspected.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/pipeline/pipeline_progress.hpp>
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

/// What speaks against a rank.
enum class suspicion : std::uint8_t {
  reported,     ///< It reported a failure of its own.
  not_asked,    ///< Nobody has asked it for what others have launched.
  not_launched, ///< It has been asked for that, and its launcher has not come to it.
  stuck_launch, ///< Its launch call has not returned, where others' have.
  not_started,  ///< It has launched what others run, and its device waits for something before it.
  runs_other,   ///< Its device is still busy with an operation of its own.
  unfinished,   ///< Its device has not finished what most others have.
  alone_done,   ///< It says that it is done with what most others still wait in: its part may never have been there.
  absent_peer,  ///< Another rank waits in a send or recv for it.
};
/// Name of \p why as written above.
[[nodiscard]] std::string_view to_string(suspicion why) noexcept;

/// A rank that something speaks against.
struct suspect {
  troupe::rank rank{};
  suspicion why{};
  std::string reason{}; ///< "it has been asked for 17 collectives, and ranks 0, 2 wait in the 18th", for people.
};

/// Where the ranks of this process stood, and whom to suspect.
struct fault_report {
  /// Where one rank stood.
  struct standing {
    troupe::rank rank{};
    device_id device{};
    /// submitted is the last that was asked of it.
    pipeline_progress progress{};
    std::size_t in_flight = 0; ///< Requests without outcome, and failed ones whose buffers are still held.
    error fault{};             ///< That it reported itself; errc::none where it did not.
    std::string last_error{};  ///< Of its communicator's library (library_words).
  };

  error fault{}; ///< What the report is about.
  std::uint64_t world = 0;
  troupe::epoch epoch{};
  int world_size = 0;
  time_point taken{};                ///< By the world's clock; progress's times are to be compared with it.
  std::vector<standing> ranks{};     ///< Those of this process, ascending.
  std::vector<suspect> suspects{};   ///< As judge() finds them.
  std::string remark{};              ///< Where there is no suspect: why nothing can be told.
  std::vector<std::string> asking{}; ///< Commands that ask the libraries of the communicators.
};

/// What a report is about.
struct fault_scope {
  error fault{};
  std::uint64_t world = 0;
  troupe::epoch epoch{};
  int world_size = 0;
};

/// Looks at \p pipelines, those of this process in rank order, and judges. Take it before ranks are failed for
/// another's fault: what they report then is not theirs.
/// Threads: any. Waits for no launcher, device or peer (BLK-1).
[[nodiscard]] std::shared_ptr<const fault_report>
take_fault_report(fault_scope scope, std::span<const std::shared_ptr<rank_pipeline>> pipelines, time_point now);

/// One line: what happened, who is suspected and why, and where the ranks stand; of many ranks the first eight,
/// suspects before others.
[[nodiscard]] std::string describe(const fault_report& report);

} // namespace troupe
