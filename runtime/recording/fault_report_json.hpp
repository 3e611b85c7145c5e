/// A fault's report for programs: one JSON document (docs/recovery.md has its fields).
#pragma once

#include <troupe/collectives/pipeline/fault_report.hpp>

#include <chrono>
#include <filesystem>
#include <string>

namespace troupe {

/// Who writes a report, and when.
struct report_stamp {
  int pid = 0;
  std::chrono::system_clock::time_point at{};

  [[nodiscard]] static report_stamp now();
};

/// UTF-8. What is not known is null. \p indent: of each level; none: on one line.
[[nodiscard]] std::string as_json(const fault_report& report, const report_stamp& stamp, int indent = -1);

/// Writes it into \p folder, which is made if it is not there, as "world3-epoch2-pid4711-20260131T235959.123456Z.json".
/// Nobody ever reads half of it. Returns its path.
/// Errors: invalid_argument, naming the file and the reason.
std::filesystem::path write_fault_report(const std::filesystem::path& folder, const fault_report& report,
                                         const report_stamp& stamp);

} // namespace troupe
