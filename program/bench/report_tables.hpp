/// Formats the figures of a bench's report as tables for people, from the report alone.
#pragma once

#include <troupe/program/bench/bench_report.hpp>

#include <string>
#include <vector>

namespace troupe::program {

struct report_table {
  std::string caption;
  std::vector<std::string> titles{}; ///< The columns' titles, with the unit.
  std::vector<std::vector<std::string>> rows{};
};

/// Returns all tables of \p report, without columns that have no figure in any row. Returns none for an unknown bench.
[[nodiscard]] std::vector<report_table> tables_of(const json& report);

} // namespace troupe::program
