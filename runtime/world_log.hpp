/// Writes the events of a world to the log.
#pragma once

#include <troupe/actors/world/world_status.hpp>
#include <troupe/collectives/pipeline/deadline_pool.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

class flight_recorder;

/// The flight record that is written beside a fault report.
struct recorded_by {
  std::shared_ptr<const flight_recorder> log{}; ///< Null: no flight record is written.
  std::string about{};                          ///< Versions and settings, on one line.
};

/// Returns a listener that logs every event: as a warning if it has a reason, else as information. A fault report is
/// logged as a warning for people, and written as JSON for programs: to a file in \p report_folder, by a helper thread
/// so that a slow disk does not delay the world, or, without a folder, to the log as information. The flight record is
/// written to the same folder. A file that cannot be written is only a warning.
[[nodiscard]] world_status::listener make_world_log(std::optional<std::filesystem::path> report_folder,
                                                    std::shared_ptr<deadline_pool> helpers, recorded_by recorder = {});

} // namespace troupe
