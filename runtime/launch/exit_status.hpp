/// How a process ended.
#pragma once

#include <string>

namespace troupe::launch {

struct exit_status {
  int code = 0;      ///< The exit code, 0 to 255. Not valid if a signal ended the process or it was lost.
  int signal = 0;    ///< The signal that ended it. 0: it exited.
  bool lost = false; ///< Its end was not observed, for example because the connection to its host broke.

  [[nodiscard]] bool succeeded() const noexcept { return code == 0 && signal == 0 && !lost; }
  /// Returns the status as shells report it: the code, or 128 + signal; 255 for a lost process, as ssh does.
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

} // namespace troupe::launch
