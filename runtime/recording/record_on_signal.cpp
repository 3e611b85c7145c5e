#include <troupe/device/error.hpp>
#include <troupe/runtime/recording/record_on_signal.hpp>

#include <semaphore.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <utility>

namespace troupe {

namespace {

/// Posted by the handlers of the two signals, because a signal handler may call few other functions. Never destroyed,
/// because a handler may still run on another thread after the waiting thread has ended.
std::array<sem_t, 2> semaphores;

sem_t& semaphore_of(int number) noexcept {
  return semaphores[number == SIGUSR1 ? 0 : 1];
}

void notify(int number) noexcept {
  const int kept = errno;
  ::sem_post(&semaphore_of(number));
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

record_on_signal::record_on_signal(int number, std::function<void()> write)
  : number_{number}, write_{std::move(write)} {
  struct sigaction now {};
  ::sigaction(number, nullptr, &now);
  if (now.sa_handler != SIG_DFL)
    throw exception{errc::invalid_argument,
                    "recorder.signal is " + std::string{record_signal_name(number)} +
                        ", which this process handles already: set it to the other of USR1 and USR2, or to empty"};
  ::sem_init(&semaphore_of(number), 0, 0); // also forgets what a late handler of the previous object has posted
  struct sigaction mine {};
  mine.sa_handler = notify;
  mine.sa_flags = SA_RESTART;
  ::sigaction(number, &mine, nullptr);
  thread_ = worker{[this] { run(); }};
}

record_on_signal::~record_on_signal() {
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  ::sigaction(number_, &usual, nullptr);
  stopping_.store(true);
  ::sem_post(&semaphore_of(number_));
  thread_.join();
}

void record_on_signal::run() {
  sem_t& semaphore = semaphore_of(number_);
  for (;;) {
    while (::sem_wait(&semaphore) != 0) { // interrupted
    }
    while (::sem_trywait(&semaphore) == 0) { // signals that came during one write lead to one more
    }
    if (stopping_.load()) return;
    write_();
  }
}

} // namespace troupe
