// A process that runs a function of a test and ends.
#pragma once

#include <catch2/catch_test_macros.hpp>

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <utility>

namespace troupe::tests {

/// Forks. The child runs \p body and ends with its result as exit status. If the test has other threads when it forks,
/// \p body may call only what is safe after fork() in such a process. A child that is still there at the end is killed.
class forked_process {
public:
  template <class Body>
  explicit forked_process(Body body) : pid_{::fork()} {
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) ::_exit(body());
    handle_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
    REQUIRE(handle_ >= 0);
  }
  forked_process(const forked_process&) = delete;
  forked_process& operator=(const forked_process&) = delete;
  ~forked_process() {
    kill(SIGKILL);
    if (!is_reaped_) ::waitpid(pid_, nullptr, 0);
    ::close(handle_);
  }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void kill(int signal) const noexcept {
    if (!is_reaped_) ::kill(pid_, signal);
  }
  /// Waits until it has ended, at most 30 s. Returns its status as waitpid() does.
  [[nodiscard]] int status() {
    await_end();
    int status = -1;
    REQUIRE(::waitpid(pid_, &status, 0) == pid_);
    is_reaped_ = true;
    return status;
  }
  /// Waits until it has ended, without reaping it.
  void await_end() const {
    pollfd one{.fd = handle_, .events = POLLIN, .revents = 0};
    INFO("waited 30 s for the end of a child");
    REQUIRE(::poll(&one, 1, 30'000) == 1);
  }

private:
  pid_t pid_;
  int handle_ = -1;
  bool is_reaped_ = false;
};

} // namespace troupe::tests
