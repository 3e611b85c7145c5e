#include <troupe/device/file_descriptor.hpp>
#include <troupe/runtime/recording/replace_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace troupe {

namespace {

/// Creates a file that nobody else may read. Returns errno.
int write_new(const std::filesystem::path& path, std::string_view text) {
  const file_descriptor file{
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR)};
  if (!file) return errno;
  while (!text.empty()) {
    const ssize_t count = ::write(file.native(), text.data(), text.size());
    if (count < 0 && errno != EINTR) return errno;
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

} // namespace

std::string replace_file(const std::filesystem::path& path, std::string_view text) {
  // Renaming over a device or a pipe would remove it; root could remove files of /dev.
  struct stat found {};
  if (::lstat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode) && !S_ISLNK(found.st_mode))
    return "it exists and is not a regular file";
  const std::filesystem::path part = path.string() + ".part";
  std::error_code problem;
  std::filesystem::remove(part, problem); // left by a process that was killed, or a link to another place
  if (const int failed = write_new(part, text); failed != 0) {
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
