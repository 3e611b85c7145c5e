/// Writes a fault report for programs: one JSON document (docs/recovery.md lists its fields).
#pragma once

#include <troupe/collectives/pipeline/fault_report.hpp>

#include <chrono>
#include <filesystem>
#include <string>

namespace troupe {

/// The process and time of a report.
struct report_stamp {
  int pid = 0;
  std::chrono::system_clock::time_point at{};

  [[nodiscard]] static report_stamp now();
};

/// Returns the report as UTF-8. Unknown values are null. \p indent is the indentation per level; negative: all on one
/// line.
[[nodiscard]] std::string as_json(const fault_report& report, const report_stamp& stamp, int indent = -1);

/// Writes the report into \p folder, which is created if needed, as
/// "world3-epoch2-pid4711-20260131T235959.123456Z.json". Readers never see a partial file. Returns its path. Errors:
/// invalid_argument, naming the file and the reason.
std::filesystem::path write_fault_report(const std::filesystem::path& folder, const fault_report& report,
                                         const report_stamp& stamp);

} // namespace troupe
