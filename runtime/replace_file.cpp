#include <troupe/runtime/replace_file.hpp>

#include <fstream>
#include <system_error>

namespace troupe {

std::string replace_file(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path part = path.string() + ".part";
  std::error_code problem;
  std::ofstream file{part, std::ios::binary | std::ios::trunc};
  file << text;
  file.close();
  if (!file) {
    std::filesystem::remove(part, problem);
    return "it could not be opened, or the disk is full";
  }
  std::filesystem::rename(part, path, problem);
  if (!problem) return {};
  std::string why = problem.message();
  std::filesystem::remove(part, problem);
  return why;
}

} // namespace troupe
