#include <troupe/runtime/configuration/launch_environment.hpp>
#include <troupe/runtime/launch/file_descriptor.hpp>
#include <troupe/runtime/launch/program_path.hpp>

#include <troupe/device/error.hpp>

#include <unistd.h>

#include <filesystem>
#include <sstream>

namespace troupe::launch {

namespace {

bool is_executable(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

} // namespace

std::string find_program(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    if (is_executable(program)) return program;
    std::error_code ignored;
    throw exception{errc::missing,
                    "the program '" + program + "' " +
                        (std::filesystem::exists(program, ignored) ? "is not an executable file" : "does not exist")};
  }
  std::istringstream folders{process_variables()("PATH").value_or("/usr/local/bin:/usr/bin:/bin")};
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + program;
    if (!program.empty() && is_executable(path)) return path;
  }
  throw exception{errc::missing, "the program '" + program + "' is not in PATH: write its path, as in ./" + program};
}

std::string own_program() {
  std::error_code problem;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", problem);
  if (problem) throw exception{errc::unsupported, "/proc/self/exe cannot be read: " + problem.message()};
  return path.string();
}

} // namespace troupe::launch
