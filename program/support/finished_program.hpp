/// Runs another program to its end and captures its output, e.g. troupe-plot.
#pragma once

#include <troupe/processes/launch/child_process.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

struct finished_program {
  launch::exit_status status{};
  std::string output{}; ///< The complete standard output.
  std::string errors{}; ///< The complete standard error.

  /// Returns the last line of standard error that is not empty, for messages. If there is none, describes how the
  /// program ended.
  [[nodiscard]] std::string last_words() const;
};

/// Runs \p words[0], a path or a name that is searched in PATH, with the other words as its arguments. No shell is
/// involved, so the arguments are passed unchanged. \p input is its standard input. Returns when the program has ended.
/// The program belongs to this process's process group, so Ctrl-C ends both. Errors: missing when there is no such
/// program; unsupported when the system refuses to start it.
[[nodiscard]] finished_program run_to_end(const std::vector<std::string>& words, std::string_view input = {});

} // namespace troupe::program
