/// Lets tests send signals to their own process.
#pragma once

#include <catch2/catch_test_macros.hpp>

#include <ucontext.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <vector>

namespace troupe::tests {

/// While it lives, the calling thread keeps \p signals blocked. Another thread of the process, left by an earlier test,
/// that gets one blocks it from then on, and sends it to the process again.
class guarded_signals {
public:
  explicit guarded_signals(const std::vector<int>& signals) {
    struct sigaction passing_on {};
    passing_on.sa_flags = SA_SIGINFO;
    passing_on.sa_sigaction = [](int signal, siginfo_t*, void* context) {
      sigaddset(&static_cast<ucontext_t*>(context)->uc_sigmask, signal); // the thread's mask after this function
      ::kill(::getpid(), signal);
    };
    sigset_t blocked;
    sigemptyset(&blocked);
    for (const int one : signals) {
      REQUIRE(::sigaction(one, &passing_on, &actions_[one]) == 0);
      sigaddset(&blocked, one);
    }
    REQUIRE(::pthread_sigmask(SIG_BLOCK, &blocked, &mask_) == 0);
  }
  guarded_signals(const guarded_signals&) = delete;
  guarded_signals& operator=(const guarded_signals&) = delete;
  ~guarded_signals() {
    for (const auto& [signal, action] : actions_) ::signal(signal, SIG_IGN); // drops what is pending
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
    for (const auto& [signal, action] : actions_) ::sigaction(signal, &action, nullptr);
  }

private:
  std::map<int, struct sigaction> actions_;
  sigset_t mask_{};
};

} // namespace troupe::tests
