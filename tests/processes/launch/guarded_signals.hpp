/// Lets tests send signals to their own process.
#pragma once

#include <catch2/catch_test_macros.hpp>

#include <csignal>
#include <map>
#include <vector>

namespace troupe::tests {

/// While it lives, the calling thread keeps \p signals blocked, and a thread that gets one all the same does not end
/// the process.
class guarded_signals {
public:
  explicit guarded_signals(const std::vector<int>& signals) {
    struct sigaction nothing {};
    nothing.sa_handler = [](int) {};
    sigset_t blocked;
    sigemptyset(&blocked);
    for (const int one : signals) {
      REQUIRE(::sigaction(one, &nothing, &actions_[one]) == 0);
      sigaddset(&blocked, one);
    }
    REQUIRE(::pthread_sigmask(SIG_BLOCK, &blocked, &mask_) == 0);
  }
  guarded_signals(const guarded_signals&) = delete;
  guarded_signals& operator=(const guarded_signals&) = delete;
  ~guarded_signals() {
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr); // what is pending comes now
    for (const auto& [signal, action] : actions_) ::sigaction(signal, &action, nullptr);
  }

private:
  std::map<int, struct sigaction> actions_;
  sigset_t mask_{};
};

} // namespace troupe::tests
