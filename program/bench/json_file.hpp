/// A JSON document that is written completely or not at all.
#pragma once

#include <troupe/program/support/whole_file.hpp>

#include <nlohmann/json_fwd.hpp>

#include <cstdio>
#include <optional>
#include <string>

namespace troupe::program {

/// The destination of a bench's JSON report.
class json_file {
public:
  /// \p path is empty for no document, or "-" for standard output. Tries whether the file can be written.
  /// Errors: invalid_argument.
  explicit json_file(const std::string& path);

  [[nodiscard]] bool wanted() const noexcept { return standard_output_ || file_.has_value(); }
  /// Returns where tables are printed: standard error when the document goes to standard output.
  [[nodiscard]] std::FILE* text_output() const noexcept { return standard_output_ ? stderr : stdout; }
  /// Writes a temporary file beside the target and renames it, so that a reader never sees half of it. Does nothing
  /// without a path. Errors: invalid_argument.
  void write(const nlohmann::ordered_json& document) const;

private:
  bool standard_output_ = false;
  std::optional<whole_file> file_;
};

} // namespace troupe::program
