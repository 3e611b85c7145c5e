/// What the log is told of a world.
#pragma once

#include <troupe/actors/world/world_board.hpp>
#include <troupe/collectives/pipeline/deadline_pool.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

class flight_recorder;

/// What keeps the flight record that goes beside a fault's report.
struct recorded_by {
  std::shared_ptr<const flight_recorder> log{}; ///< None: there is no such record.
  std::string about{};                          ///< Versions and settings, on one line.
};

/// Logs every event: as a warning with its reason, else as information. A report is a warning for people, and JSON for
/// programs: a file in \p report_folder, written by a helper so that no disk holds the world up, or, where there is
/// none, information in the log. The flight record goes beside it into the folder. A file that cannot be written is
/// a warning and nothing else.
[[nodiscard]] world_board::listener make_world_log(std::optional<std::filesystem::path> report_folder,
                                                   std::shared_ptr<deadline_pool> helpers, recorded_by recorder = {});

} // namespace troupe
