/// How a process ended.
#pragma once

#include <string>

namespace troupe::launch {

struct exit_status {
  int code = 0;      ///< What it returned, 0 to 255. Means nothing when a signal ended it or it was lost.
  int signal = 0;    ///< What ended it; 0 if it returned.
  bool lost = false; ///< Nobody saw its end, e.g. because the connection to its host broke.

  [[nodiscard]] bool succeeded() const noexcept { return code == 0 && signal == 0 && !lost; }
  /// As shells say it: the code, or 128 + signal; 255 for a lost one, as ssh has it.
  [[nodiscard]] int as_shell_status() const noexcept {
    if (lost) return 255;
    return signal != 0 ? 128 + signal : code;
  }
  friend bool operator==(const exit_status&, const exit_status&) = default;
};

/// What became of the process, to follow its name: "ended with exit status 3", "was ended by signal 9 (SIGKILL)".
[[nodiscard]] std::string to_string(const exit_status& status);

/// E.g. "9 (SIGKILL)".
[[nodiscard]] std::string describe_signal(int signal);

} // namespace troupe::launch
