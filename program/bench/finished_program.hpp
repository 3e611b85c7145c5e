/// Another program, run to its end with what it said taken in: gnuplot, or a bench in a process of its own.
#pragma once

#include <troupe/runtime/launch/exit_status.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

struct finished_program {
  launch::exit_status status{};
  std::string output{}; ///< All of its standard output.
  std::string errors{}; ///< And of its standard error.

  /// The last line that is not empty of what it said to standard error, for people; how it ended where it said nothing.
  [[nodiscard]] std::string last_words() const;
};

/// Runs \p words[0], a path or a name to be looked for in PATH, with the rest as its arguments, as they are: no shell
/// is in between. \p input is its standard input. Returns when it has ended. It belongs to this program's process
/// group, so that Ctrl-C ends both. Errors: missing, when there is no such program; unsupported, when the system
/// refuses.
[[nodiscard]] finished_program run_to_end(const std::vector<std::string>& words, std::string_view input = {});

} // namespace troupe::program
