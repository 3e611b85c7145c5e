/// Finds a program before anything is started.
#pragma once

#include <string>

namespace troupe::launch {

/// Returns \p program itself if it has a slash, else the first executable file of that name in PATH. Errors: missing if
/// there is none or it cannot be executed.
[[nodiscard]] std::string find_program(const std::string& program);

/// Returns the executable file of this process. Errors: unsupported.
[[nodiscard]] std::string own_program();

} // namespace troupe::launch
