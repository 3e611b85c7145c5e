/// Tables as nccl-tests prints them: right-aligned columns, headings behind '#'.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

struct table_column {
  std::string title;
  std::string unit;
  int width = 8; ///< A blank is put before it; longer cells are not cut.
};

class text_table {
public:
  /// \p to outlives the table.
  text_table(std::FILE* to, std::vector<table_column> columns) : to_{to}, columns_{std::move(columns)} {}

  /// Titles above units.
  void print_heading() const;
  /// A cell for each column, flushed: a row may be minutes of measuring.
  void print_row(const std::vector<std::string>& cells) const;

private:
  std::FILE* to_;
  std::vector<table_column> columns_;
};

[[nodiscard]] std::string fixed(double value, int digits = 2);

} // namespace troupe::program
