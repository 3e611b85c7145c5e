#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/placement/device_claim.hpp>

#include <troupe/device/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace troupe {

namespace {

// Offsets of two bytes that are locked. All holders share a lock on the first. A process that checks or changes the
// claim locks the second.
constexpr off_t held_byte = 0;
constexpr off_t checking_byte = 1;
// Size and offsets of the texts that name the holder and the process that last locked the second byte.
constexpr std::size_t text_bytes = 1024;
constexpr off_t holder_at = 0;
constexpr off_t checker_at = text_bytes;

constexpr std::chrono::milliseconds between_tries{5};

/// Locks by open file description, not by process, so that two runtimes of one process count as two.
bool set_lock(const file_descriptor& file, short kind, off_t byte) {
  struct flock wanted {};
  wanted.l_type = kind;
  wanted.l_whence = SEEK_SET;
  wanted.l_start = byte;
  wanted.l_len = 1;
  int done = 0;
  do done = ::fcntl(file.native(), F_OFD_SETLK, &wanted);
  while (done != 0 && errno == EINTR);
  return done == 0;
}

bool is_held_by_others(int problem) noexcept {
  return problem == EAGAIN || problem == EACCES;
}

bool set_lock(const file_descriptor& file, short kind, off_t byte, nanoseconds patience) {
  for (const auto until = later(std::chrono::steady_clock::now(), patience);;) {
    if (set_lock(file, kind, byte)) return true;
    if (!is_held_by_others(errno) || std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(between_tries);
  }
}

/// Returns whether no other user can write to the file or folder, so that no other user can lock it.
bool is_own(const struct stat& found, mode_t kind) {
  return (found.st_mode & S_IFMT) == kind && found.st_uid == ::geteuid() && (found.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/// Opens a file or folder of this user. On an error it returns an empty descriptor and sets errno; EPERM means that it
/// belongs to another user or that others may write to it.
file_descriptor open_own(int at, const std::string& name, int flags, mode_t kind) {
  file_descriptor file{::openat(at, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR)};
  struct stat found {};
  if (!file || ::fstat(file.native(), &found) != 0) return {};
  if (is_own(found, kind)) return file;
  errno = EPERM;
  return {};
}

file_descriptor open_claim(const std::filesystem::path& folder, const std::string& name) {
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) return {};
  const file_descriptor in = open_own(AT_FDCWD, folder.string(), O_RDONLY | O_DIRECTORY, S_IFDIR);
  return in ? open_own(in.native(), name, O_RDWR | O_CREAT, S_IFREG) : file_descriptor{};
}

std::string read_text(const file_descriptor& file, off_t from) {
  std::array<char, text_bytes> text{};
  const ssize_t length = ::pread(file.native(), text.data(), text.size(), from);
  const std::string_view all{text.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
  return std::string{all.substr(0, all.find('\0'))};
}

/// Writes a text that names a process. If the disk is full the old text remains: other processes are still refused, but
/// the message may be out of date.
void write_text(const file_descriptor& file, off_t to, const std::string& what) {
  std::array<char, text_bytes> text{};
  what.copy(text.data(), text.size() - 1);
  [[maybe_unused]] const ssize_t written = ::pwrite(file.native(), text.data(), text.size(), to);
}

std::string file_of(std::string device) {
  std::ranges::replace_if(
      device, [](unsigned char one) { return std::isalnum(one) == 0; }, '-');
  return "gpu-" + device;
}

} // namespace

device_claim::device_claim(const std::filesystem::path& folder, const std::string& device, const std::string& world,
                           const std::string& holder, nanoseconds patience) {
  const std::string name = file_of(device);
  const std::string path = (folder / name).string();
  file_descriptor file = open_claim(folder, name);
  const bool is_locked = file && set_lock(file, F_WRLCK, checking_byte, patience);
  const int problem = errno;
  if (!is_locked && (!file || !is_held_by_others(problem))) {
    log_warning("cannot determine whether another world uses GPU " + device + ": " + path + ": " +
                (problem == EPERM ? "the folder or the file belongs to another user, or others may write to it"
                                  : std::generic_category().message(problem)));
    return;
  }
  if (!is_locked)
    throw exception{errc::deadline_exceeded,
                    "could not determine within " + format_duration(patience) + " whether another world uses GPU " +
                        device + ": " + read_text(file, checker_at) + " has kept " + path +
                        " locked for all that time. If that process is stopped, continue it or end it"};
  write_text(file, checker_at, holder + " (pid " + std::to_string(::getpid()) + ')');
  if (set_lock(file, F_WRLCK, held_byte)) {
    write_text(file, holder_at, world + "\n" + holder);
  } else {
    const std::string found = read_text(file, holder_at);
    const auto end = found.find('\n');
    if (found.substr(0, end) != world)
      throw exception{
          errc::device_occupied,
          "GPU " + device + " is used by " + (end == std::string::npos ? "another world" : found.substr(end + 1)) +
              ", and " + holder +
              " wants it for another world: without a common order of both worlds' launches, each could wait for the "
              "other indefinitely. Give them different GPUs, or form both worlds in one process"};
  }
  set_lock(file, F_RDLCK, held_byte);
  set_lock(file, F_UNLCK, checking_byte);
  file_ = std::move(file);
}

std::string name_to_claim(driver& api, device_id where) {
  const std::string name = api.describe(where).pci_bus_id;
  return name.starts_with("mock:") ? std::string{} : name;
}

std::shared_ptr<void> claim_in_process(const std::string& device) {
  static auto* const mutex = new std::mutex; // both are never destroyed, because runtimes may be static objects
  static auto* const taken = new std::map<std::string, std::weak_ptr<void>>;
  const std::lock_guard lock{*mutex};
  std::weak_ptr<void>& holder = (*taken)[device];
  if (!holder.expired())
    throw exception{errc::device_occupied,
                    "GPU " + device +
                        " is used by another runtime of this process, and two runtimes would launch on it "
                        "in two orders: form all worlds that share a GPU by one runtime, or end the other "
                        "runtime first"};
  auto claim = std::make_shared<int>(0);
  holder = claim;
  return claim;
}

std::filesystem::path device_claims_folder() {
  const std::string own = "troupe-" + std::to_string(::geteuid());
  for (const char* const one : {"/run/lock", "/dev/shm", "/tmp"}) {
    if (::access(one, W_OK | X_OK) != 0) continue;
    std::filesystem::path folder = std::filesystem::path{one} / own;
    struct stat found {};
    if (::lstat(folder.c_str(), &found) != 0 || is_own(found, S_IFDIR)) return folder;
    log_warning(folder.string() + " belongs to user " + std::to_string(found.st_uid) +
                ", or others may write to it: GPUs are claimed elsewhere");
  }
  return std::filesystem::path{"/tmp"} / own;
}

} // namespace troupe
