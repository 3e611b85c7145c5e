/// Finds the executable file of a program, so that a missing program is reported before a job starts.
#pragma once

#include <string>

namespace troupe::launch {

/// Returns \p program itself if it has a slash, else the first executable file of that name in PATH. Errors: missing if
/// no such file exists or it cannot be executed.
[[nodiscard]] std::string find_program(const std::string& program);

/// Returns the path of this process's executable file. Errors: unsupported if the system does not report it.
[[nodiscard]] std::string own_program();

} // namespace troupe::launch
