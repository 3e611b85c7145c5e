/// Finds programs, starts a child process with pipes for its output, and reports its exit.
#pragma once

#include <troupe/device/file_descriptor.hpp>
#include <troupe/device/process_mark.hpp>

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

namespace troupe::launch {

/// Sets an environment variable, or removes it if there is no value.
struct variable_change {
  std::string name;
  std::optional<std::string> value;
};

struct process_spec {
  std::string program;                ///< A path, or a name that is searched in PATH.
  std::vector<std::string> arguments; ///< The arguments, without the program's name.
  /// Changes relative to the environment of this process.
  std::vector<variable_change> environment{};
  std::string prefix{}; ///< Text before each of its output lines, for example "[2] ".
};

struct exit_status {
  int code = 0;      ///< The exit code, 0 to 255. Not valid if a signal ended the process or it was lost.
  int signal = 0;    ///< The signal that ended it. 0: it exited.
  bool lost = false; ///< Its end was not observed, because another part of the program reaped it.

  [[nodiscard]] bool succeeded() const noexcept { return code == 0 && signal == 0 && !lost; }
  /// Returns the status as shells report it: the code, or 128 + signal; 255 for a lost process.
  [[nodiscard]] int as_shell_status() const noexcept {
    if (lost) return 255;
    return signal != 0 ? 128 + signal : code;
  }
  friend bool operator==(const exit_status&, const exit_status&) = default;
};

/// Describes the end of a process, to follow its name: "ended with exit status 3", "was ended by signal 9 (SIGKILL)".
[[nodiscard]] std::string to_string(const exit_status& status);

/// Describes a signal, for example "9 (SIGKILL)".
[[nodiscard]] std::string describe_signal(int signal);

struct pipe_ends {
  file_descriptor reading;
  file_descriptor writing;
};

/// Creates a pipe. Both ends are closed on exec and are never 0, 1 or 2, even if those are free. Errors: unsupported if
/// there are no more descriptors.
[[nodiscard]] pipe_ends make_pipe();

/// Finds an executable file. \p program is a path, or a name that is searched in PATH. Errors: missing.
[[nodiscard]] std::string find_program(const std::string& program);
/// Returns the path of the program that this process runs. Errors: unsupported if /proc is not mounted.
[[nodiscard]] std::string own_program();

/// Throws an error with code unsupported and errno's number and text. \p text names the remedy.
[[noreturn]] void throw_system_error(const char* call, const std::string& text);

/// A running child process, the leader of its own process group. Its standard input is empty. Move-only. When it ends,
/// the rest of its group is killed, so that none of its children runs beside its replacement. It is killed with SIGKILL
/// when the thread that constructs the object ends, for any reason.
///
/// Threads: one at a time.
class child_process {
public:
  /// Starts the program and returns when it is running. \p signals is its initial signal mask. Errors: missing
  /// (the program), unsupported (the system refuses).
  child_process(const process_spec& what, const sigset_t& signals);
  child_process(child_process&&) noexcept = default;
  child_process& operator=(child_process&&) noexcept = delete;
  /// Kills it if it has not been reaped, and waits for its end; not in a fork, of which it is no child. A process that
  /// the system cannot end within seconds (a driver that hangs) is reported and left running.
  ~child_process();

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// Returns a descriptor that becomes readable when the process has ended.
  [[nodiscard]] int ended() const noexcept { return ended_.native(); }
  /// Return this process's ends of the pipes. Reads never block.
  [[nodiscard]] file_descriptor& output() noexcept { return output_; }
  [[nodiscard]] file_descriptor& errors() noexcept { return errors_; }

  /// Sends \p signal to the process group, if the process has not been reaped.
  void kill(int signal) noexcept;
  /// Waits until the process has ended, for five seconds at most.
  void await_end() const noexcept;
  /// Returns the exit status once, and nothing while the process runs. Never blocks.
  [[nodiscard]] std::optional<exit_status> reap() noexcept;

private:
  void await_exec(file_descriptor told, const process_spec& what) const;

  process_mark made_;
  pid_t pid_ = 0;
  file_descriptor ended_; ///< Closed when the process has been reaped.
  file_descriptor output_;
  file_descriptor errors_;
};

} // namespace troupe::launch
