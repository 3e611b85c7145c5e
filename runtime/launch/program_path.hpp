/// Finds a program before anything is started.
#pragma once

#include <string>

namespace troupe::launch {

/// \p program itself where it holds a slash, else the first executable file of that name in PATH.
/// Errors: missing, when there is none or it cannot be executed.
[[nodiscard]] std::string find_program(const std::string& program);

/// The file that this process runs. Errors: unsupported.
[[nodiscard]] std::string own_program();

} // namespace troupe::launch
