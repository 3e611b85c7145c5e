/// The figures of a bench's report as tables for people, from the report alone.
#pragma once

#include <troupe/program/bench/bench_report.hpp>

#include <string>
#include <vector>

namespace troupe::program {

struct report_table {
  std::string caption;
  std::vector<std::string> titles{}; ///< Of the columns, with the unit.
  std::vector<std::vector<std::string>> rows{};
};

/// All tables of \p report; columns that no row has a figure for are left out. None for a bench that is not known here.
[[nodiscard]] std::vector<report_table> tables_of(const json& report);

} // namespace troupe::program
