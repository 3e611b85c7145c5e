/// One process that we have started: its pipes, its exit, and its signals.
#pragma once

#include <troupe/runtime/launch/exit_status.hpp>
#include <troupe/runtime/launch/pipe.hpp>
#include <troupe/runtime/launch/process_spec.hpp>

#include <csignal>
#include <optional>

#include <sys/types.h>

namespace troupe::launch {

/// A running child, leader of a process group of its own. Move-only. When it ends, the rest of its group is killed, so
/// that its replacement does not meet its children.
///
/// Threads: one at a time. With process_spec::dies_with_starter, the thread that constructs it must live as long as it.
class child_process {
public:
  /// Starts the program and returns when it is running. \p signals is its initial signal mask. Errors: missing (the
  /// program or the folder), unsupported (the system refuses).
  child_process(const process_spec& what, const sigset_t& signals);
  child_process(child_process&&) noexcept = default;
  child_process& operator=(child_process&&) noexcept = delete;
  /// Kills it if it has not been reaped, and waits for its end. A process that the system cannot end within seconds (a
  /// driver that hangs) is reported and left.
  ~child_process();

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// Returns a descriptor that becomes readable when the process has ended.
  [[nodiscard]] int ended() const noexcept { return ended_.native(); }
  /// Our ends of its pipes. They never block.
  [[nodiscard]] file_descriptor& input() noexcept { return input_; }
  [[nodiscard]] file_descriptor& output() noexcept { return output_; }
  [[nodiscard]] file_descriptor& errors() noexcept { return errors_; }

  /// Sends \p signal to its process group, if it has not been reaped.
  void kill(int signal) noexcept;
  /// Returns its exit status once, and nothing while it runs. Never blocks.
  [[nodiscard]] std::optional<exit_status> reap() noexcept;

private:
  void await_exec(file_descriptor told, const process_spec& what);

  pid_t pid_ = 0;
  file_descriptor ended_; ///< Closed when the process has been reaped.
  file_descriptor input_;
  file_descriptor output_;
  file_descriptor errors_;
};

} // namespace troupe::launch
