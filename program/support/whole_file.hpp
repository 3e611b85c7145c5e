/// Writes a file completely or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace troupe::program {

class whole_file {
public:
  /// Checks that the file can be written, without creating it. \p remedy is the end of error texts: it states what to
  /// name instead. Errors: invalid_argument.
  explicit whole_file(const std::string& path, std::string remedy = "name a file in a folder that you may write to");

  /// Returns the resolved path: the target of a link.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Writes a temporary file beside the target and renames it, so that a reader never sees half of it.
  /// Errors: invalid_argument.
  void write(std::string_view text) const;

private:
  std::filesystem::path path_;
  std::string remedy_;
};

} // namespace troupe::program
