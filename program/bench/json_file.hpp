/// A JSON document that is there whole or not at all.
#pragma once

#include <troupe/program/support/whole_file.hpp>

#include <nlohmann/json_fwd.hpp>

#include <cstdio>
#include <optional>
#include <string>

namespace troupe::program {

/// Where a bench leaves its figures for machines.
class json_file {
public:
  /// \p path may be empty for none, or "-" for standard output. Finds out by trying whether the file can be written.
  /// Errors: invalid_argument.
  explicit json_file(const std::string& path);

  [[nodiscard]] bool wanted() const noexcept { return standard_output_ || file_.has_value(); }
  /// Where tables go: standard error when the document takes standard output.
  [[nodiscard]] std::FILE* text_output() const noexcept { return standard_output_ ? stderr : stdout; }
  /// Writes beside the file and renames, so that nobody ever reads half of it. Does nothing when none is wanted.
  /// Errors: invalid_argument.
  void write(const nlohmann::ordered_json& document) const;

private:
  bool standard_output_ = false;
  std::optional<whole_file> file_;
};

} // namespace troupe::program
