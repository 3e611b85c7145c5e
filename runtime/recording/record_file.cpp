#include <troupe/runtime/recording/record_file.hpp>

#include <troupe/device/file_descriptor.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <system_error>

namespace troupe {

std::string utc_of(std::chrono::system_clock::time_point at, utc_form form) {
  const auto since = std::chrono::floor<std::chrono::microseconds>(at.time_since_epoch());
  const auto whole = std::chrono::floor<std::chrono::seconds>(since);
  const auto seconds = static_cast<std::time_t>(whole.count());
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 24> date{};
  std::strftime(date.data(), date.size(), form == utc_form::separated ? "%Y-%m-%dT%H:%M:%S" : "%Y%m%dT%H%M%S", &parts);
  std::array<char, 16> rest{};
  std::snprintf(rest.data(), rest.size(), ".%06dZ", static_cast<int>((since - whole).count()));
  return std::string{date.data()} + rest.data();
}

namespace {

/// Creates a file. Returns 0 or an errno.
int write_new(const std::filesystem::path& path, std::string_view text, mode_t mode) {
  const file_descriptor file{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode)};
  if (!file) return errno;
  while (!text.empty()) {
    const ssize_t count = ::write(file.native(), text.data(), text.size());
    if (count < 0 && errno != EINTR) return errno;
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
  }
  return ::fsync(file.native()) == 0 ? 0 : errno;
}

} // namespace

std::string replace_file(const std::filesystem::path& path, std::string_view text, mode_t mode) {
  // Renaming over a device or a pipe would remove it; root could remove files of /dev.
  struct stat found {};
  if (::lstat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode) && !S_ISLNK(found.st_mode))
    return "it exists and is not a regular file";
  const std::filesystem::path part = path.string() + ".part";
  std::error_code problem;
  std::filesystem::remove(part, problem); // left by a process that was killed, or a link to another place
  if (const int failed = write_new(part, text, mode); failed != 0) {
    std::filesystem::remove(part, problem);
    return std::generic_category().message(failed);
  }
  std::filesystem::rename(part, path, problem);
  if (!problem) return {};
  std::string why = problem.message();
  std::filesystem::remove(part, problem);
  return why;
}

} // namespace troupe
