#include <troupe/device/error.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/runtime/recording/record_on_signal.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

/// For each signal, the eventfd to which its handler writes, because a signal handler may call few other functions; -1:
/// not yet created. It is never closed, because a handler may still run on another thread after the waiting thread has
/// ended.
std::array<std::atomic<int>, 2> descriptors{-1, -1};

std::atomic<int>& descriptor_of(int number) noexcept {
  return descriptors[number == SIGUSR1 ? 0 : 1];
}

/// Returns the eventfd after resetting its counter. A late handler of the previous object may still write to it.
/// Errors: internal.
int open_descriptor(int number) {
  std::atomic<int>& descriptor = descriptor_of(number);
  if (descriptor.load() < 0) {
    const int made = ::eventfd(0, EFD_CLOEXEC);
    if (made < 0) throw exception{errc::internal, std::string{"eventfd: "} + std::generic_category().message(errno)};
    descriptor.store(made);
  }
  pollfd waits{.fd = descriptor.load(), .events = POLLIN, .revents = 0};
  std::uint64_t count = 0;
  if (::poll(&waits, 1, 0) > 0) static_cast<void>(::read(waits.fd, &count, sizeof count) != 0);
  return waits.fd;
}

void notify(int number) noexcept {
  const int kept = errno;
  const std::uint64_t one = 1;
  if (const int descriptor = descriptor_of(number).load(); descriptor >= 0)
    static_cast<void>(::write(descriptor, &one, sizeof one) != 0); // if it is full, a notification is already pending
  errno = kept;
}

} // namespace

int parse_record_signal(std::string_view name) {
  if (name.empty()) return 0;
  if (name == "USR1") return SIGUSR1;
  if (name == "USR2") return SIGUSR2;
  throw exception{errc::invalid_argument, "'" + std::string{name} + "' must be USR1, USR2 or empty"};
}

std::string_view record_signal_name(int number) noexcept {
  if (number == SIGUSR1) return "USR1";
  return number == SIGUSR2 ? "USR2" : "";
}

class record_on_signal::waiter {
public:
  waiter(int number, std::function<void()> write) : number_{number}, write_{std::move(write)} {
    struct sigaction now {};
    ::sigaction(number, nullptr, &now);
    if (now.sa_handler != SIG_DFL)
      throw exception{errc::invalid_argument,
                      "recorder.signal is " + std::string{record_signal_name(number)} +
                          ", which this process handles already: set it to the other of USR1 and USR2, or to empty"};
    descriptor_ = open_descriptor(number);
    struct sigaction mine {};
    mine.sa_handler = notify;
    mine.sa_flags = SA_RESTART;
    ::sigaction(number, &mine, nullptr);
    thread_ = worker{[this] { run(); }};
  }
  ~waiter() {
    struct sigaction usual {};
    usual.sa_handler = SIG_DFL;
    ::sigaction(number_, &usual, nullptr);
    stopping_.store(true);
    const std::uint64_t one = 1;
    static_cast<void>(::write(descriptor_, &one, sizeof one) != 0);
    thread_.join();
  }
  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;

private:
  void run() {
    std::uint64_t count = 0;
    while (::read(descriptor_, &count, sizeof count) > 0 || errno == EINTR) {
      if (stopping_.load()) return;
      write_();
    }
  }

  int number_;
  std::function<void()> write_;
  int descriptor_ = -1;
  std::atomic<bool> stopping_{false};
  worker thread_;
};

record_on_signal::record_on_signal(int number, std::function<void()> write)
  : waiter_{std::make_unique<waiter>(number, std::move(write))} {}

record_on_signal::~record_on_signal() = default;

} // namespace troupe
