/// Prints tables in the format of nccl-tests: right-aligned columns, heading lines that begin with '#'.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

struct table_column {
  std::string title;
  std::string unit;
  int width = 8;      ///< A blank precedes it; longer cells are not cut.
  std::string path{}; ///< For print_members(): the names of the members that lead to the cell's value, e.g. "raw/p50".
  int digits = 2;     ///< For print_members(): the digits behind the point of a number that is not whole.
};

class text_table {
public:
  /// \p to must outlive the table.
  text_table(std::FILE* to, std::vector<table_column> columns) : to_{to}, columns_{std::move(columns)} {}

  /// Prints the titles above the units.
  void print_heading() const;
  /// Prints a cell for each column and flushes, because a row may take minutes to measure.
  void print_row(const std::vector<std::string>& cells) const;
  /// Prints the values that the columns' paths lead to in \p row: "-" for a missing one, "N/A" for null.
  void print_members(const nlohmann::ordered_json& row) const;

private:
  std::FILE* to_;
  std::vector<table_column> columns_;
};

[[nodiscard]] std::string fixed(double value, int digits = 2);

} // namespace troupe::program
