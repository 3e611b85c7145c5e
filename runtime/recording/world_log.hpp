/// Writes the events of a world to the log, and its fault reports as JSON for programs (docs/recovery.md lists the
/// fields).
#pragma once

#include <troupe/actors/world/world_status.hpp>
#include <troupe/collectives/pipeline/deadline_pool.hpp>
#include <troupe/collectives/pipeline/fault_report.hpp>
#include <troupe/runtime/recording/flight_record.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

/// Returns the report as JSON in UTF-8. Unknown values are null. \p indent is the indentation per level; negative: all
/// on one line.
[[nodiscard]] std::string as_json(const fault_report& report, const record_stamp& stamp, int indent = -1);

/// Writes the report into \p folder, which is created if needed, as
/// "world3-epoch2-pid4711-20260131T235959.123456Z.json". Readers never see a partial file. Returns its path. Errors:
/// invalid_argument, naming the file and the reason.
std::filesystem::path write_fault_report(const std::filesystem::path& folder, const fault_report& report,
                                         const record_stamp& stamp);

/// The flight record that is written together with a fault report.
struct recorded_by {
  std::shared_ptr<const flight_recorder> log{}; ///< Null: no flight record is written.
  std::string about{};                          ///< Versions and settings, on one line.
};

/// Returns a listener that logs every event: as a warning if it has a reason, else as information. A fault report is
/// logged as a human-readable warning, and written as JSON for programs: to a file in \p report_folder, by a helper
/// thread so that a slow disk does not delay the world, or, without a folder, to the log as information. The flight
/// record is written to the same folder. A file that cannot be written is only a warning.
[[nodiscard]] world_status::listener make_world_log(std::optional<std::filesystem::path> report_folder,
                                                    std::shared_ptr<deadline_pool> helpers, recorded_by recorder = {});

} // namespace troupe
