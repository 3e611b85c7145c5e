/// A file that is written completely or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace troupe::program {

class whole_file {
public:
  /// Tries whether the file can be written; a file that did not exist is removed again. \p remedy ends error texts: it
  /// says what to name instead. Errors: invalid_argument.
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
