#include <troupe/runtime/configuration/bounded_file.hpp>
#include <troupe/runtime/configuration/byte_size.hpp>

#include <troupe/device/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace troupe {

namespace {

class open_file {
public:
  explicit open_file(const std::filesystem::path& path)
    // Without O_NONBLOCK, open() of a pipe blocks.
    : handle_{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)} {}
  open_file(const open_file&) = delete;
  open_file& operator=(const open_file&) = delete;
  ~open_file() {
    if (handle_ >= 0) ::close(handle_);
  }
  [[nodiscard]] int handle() const noexcept { return handle_; }

private:
  int handle_;
};

} // namespace

std::string read_bounded_file(std::string_view what, const std::filesystem::path& path, std::size_t most_bytes,
                              std::string_view remedy) {
  const auto refuse = [&](const std::string& why) {
    return exception{errc::invalid_argument,
                     std::string{what} + " " + path.string() + " cannot be read (" + why + "): " + std::string{remedy}};
  };
  const auto refuse_errno = [&] { return refuse(std::generic_category().message(errno)); };
  const open_file from{path};
  struct stat found {};
  if (from.handle() < 0 || ::fstat(from.handle(), &found) != 0) throw refuse_errno();
  if (S_ISDIR(found.st_mode)) throw refuse(std::generic_category().message(EISDIR));
  if (!S_ISREG(found.st_mode)) throw refuse("it is a pipe, a socket or a device, not a regular file");
  std::string text;
  for (;;) { // the size of a file in /proc is reported as 0
    const std::size_t length = text.size();
    text.resize(std::min(most_bytes + 1,
                         std::max({2 * length, std::size_t{4'096}, static_cast<std::size_t>(found.st_size) + 1})));
    const ssize_t got = ::read(from.handle(), text.data() + length, text.size() - length);
    if (got < 0 && errno != EINTR) throw refuse_errno();
    text.resize(length + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (text.size() > most_bytes) throw refuse("it is larger than " + format_byte_size(most_bytes));
    if (got == 0) return text;
  }
}

} // namespace troupe
