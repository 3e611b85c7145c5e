#include <troupe/program/support/text_table.hpp>

#include <troupe/device/error.hpp>

#include <nlohmann/json.hpp>

namespace troupe::program {

void text_table::print_heading() const {
  for (const auto part : {&table_column::title, &table_column::unit}) {
    std::fputc('#', to_);
    bool first = true;
    for (const table_column& one : columns_) {
      // The '#' takes the place of the blank before the first column.
      std::fprintf(to_, first ? "%*s" : " %*s", one.width, (one.*part).c_str());
      first = false;
    }
    std::fputc('\n', to_);
  }
  std::fflush(to_);
}

void text_table::print_row(const std::vector<std::string>& cells) const {
  if (cells.size() != columns_.size())
    throw exception{errc::internal, "a row of " + std::to_string(cells.size()) + " cells in a table of " +
                                        std::to_string(columns_.size()) + " columns"};
  for (std::size_t i = 0; i < cells.size(); ++i) std::fprintf(to_, " %*s", columns_[i].width, cells[i].c_str());
  std::fputc('\n', to_);
  std::fflush(to_);
}

void text_table::print_members(const nlohmann::ordered_json& row) const {
  std::vector<std::string> cells;
  for (const table_column& one : columns_) {
    const nlohmann::ordered_json::json_pointer at{"/" + one.path};
    if (!row.contains(at))
      cells.emplace_back("-");
    else if (const auto& value = row.at(at); value.is_null())
      cells.emplace_back("N/A");
    else if (value.is_string())
      cells.push_back(value.get<std::string>());
    else
      cells.push_back(value.is_number_float() ? fixed(value.get<double>(), one.digits) : value.dump());
  }
  print_row(cells);
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

} // namespace troupe::program
