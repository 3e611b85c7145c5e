#include <troupe/program/support/interruption.hpp>

#include <atomic>
#include <csignal>

namespace troupe::program {

namespace {

std::atomic<int> came{0};
static_assert(std::atomic<int>::is_always_lock_free);

void note(int signal) {
  came.store(signal);
}

} // namespace

interruption::interruption() {
  came.store(0);
  struct sigaction once {};
  once.sa_handler = note;
  once.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  for (const int one : {SIGINT, SIGTERM}) ::sigaction(one, &once, nullptr);
}

interruption::~interruption() {
  for (const int one : {SIGINT, SIGTERM}) std::signal(one, SIG_DFL);
  came.store(0);
}

int interruption::signal() noexcept {
  return came.load();
}

const char* interruption::name() noexcept {
  return came.load() == SIGTERM ? "SIGTERM" : "SIGINT";
}

int interruption::exit_status(int otherwise) noexcept {
  constexpr int by_signal = 128;
  return signal() != 0 ? by_signal + signal() : otherwise;
}

} // namespace troupe::program
