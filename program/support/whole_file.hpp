/// A file that is there whole or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace troupe::program {

class whole_file {
public:
  /// Finds out by trying whether the file can be written, and leaves nothing where it is not there yet. \p remedy ends
  /// errors: what to name instead. Errors: invalid_argument.
  explicit whole_file(const std::string& path, std::string remedy = "name a file in a folder that you may write to");

  /// As it was resolved: what a link leads to.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Writes beside the file and renames, so that nobody ever reads half of it. Errors: invalid_argument.
  void write(std::string_view text) const;

private:
  std::filesystem::path path_;
  std::string remedy_;
};

} // namespace troupe::program
