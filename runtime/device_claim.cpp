#include <troupe/runtime/device_claim.hpp>
#include <troupe/runtime/logging.hpp>

#include <troupe/device/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <utility>

namespace troupe {

namespace {

using launch::file_descriptor;

// Bytes that are locked, not written. All holders share the first; who looks or changes has the second.
constexpr off_t held_byte = 0;
constexpr off_t looking_byte = 1;

/// By the open file, not by the process: two runtimes of one process are two.
bool set_lock(const file_descriptor& file, short kind, off_t byte, bool waits) {
  struct flock wanted {};
  wanted.l_type = kind;
  wanted.l_whence = SEEK_SET;
  wanted.l_start = byte;
  wanted.l_len = 1;
  int done = 0;
  do done = ::fcntl(file.native(), waits ? F_OFD_SETLKW : F_OFD_SETLK, &wanted);
  while (done != 0 && errno == EINTR);
  return done == 0;
}

file_descriptor open_shared(const std::filesystem::path& path) {
  // Not made anew where it is there: in such folders the system refuses that for other users' files.
  file_descriptor there{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
  if (there || errno != ENOENT) return there;
  file_descriptor made{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)};
  if (made) static_cast<void>(::fchmod(made.native(), 0666)); // not everybody's umask; where it fails, it is another's
  return made;
}

std::string read_all(const file_descriptor& file) {
  std::array<char, 1024> text{};
  const ssize_t length = ::pread(file.native(), text.data(), text.size(), 0);
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

bool write_all(const file_descriptor& file, const std::string& text) {
  return ::ftruncate(file.native(), 0) == 0 &&
         ::pwrite(file.native(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

std::filesystem::path file_of(const std::filesystem::path& folder, std::string device) {
  std::ranges::replace_if(
      device, [](unsigned char one) { return std::isalnum(one) == 0; }, '-');
  return folder / ("troupe-" + device);
}

} // namespace

device_claim::device_claim(const std::filesystem::path& folder, const std::string& device, const std::string& world,
                           const std::string& holder) {
  const std::filesystem::path path = file_of(folder, device);
  file_descriptor file = open_shared(path);
  if (!file || !set_lock(file, F_WRLCK, looking_byte, true)) {
    log_warning("whether another world uses GPU " + device + " cannot be told: " + path.string() + ": " +
                std::strerror(errno));
    return;
  }
  if (set_lock(file, F_WRLCK, held_byte, false)) {
    static_cast<void>(write_all(file, world + "\n" + holder)); // a full disk: then others are refused, and see less
  } else {
    const std::string found = read_all(file);
    const auto end = found.find('\n');
    if (found.substr(0, end) != world)
      throw exception{errc::device_occupied,
                      "GPU " + device + " is used by " +
                          (end == std::string::npos ? "another world" : found.substr(end + 1)) + ", and " + holder +
                          " wants it for another world: without a common order of both worlds' launches each could "
                          "wait for the other for ever. Give them different GPUs, or make them worlds of one process"};
  }
  set_lock(file, F_RDLCK, held_byte, false);
  set_lock(file, F_UNLCK, looking_byte, false);
  file_ = std::move(file);
}

std::filesystem::path device_claims_folder() {
  for (const char* const one : {"/run/lock", "/dev/shm"})
    if (::access(one, W_OK | X_OK) == 0) return one;
  return "/tmp";
}

} // namespace troupe
