/// Where environment variables are read from, so that tests and embedders can give others than the process's own.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace troupe {

/// The value of the variable of this name; nothing when it is unset or empty.
using variable_lookup = std::function<std::optional<std::string>(const std::string& name)>;

/// Looks in this process's environment. Threads: any, as long as none changes the environment at that time.
[[nodiscard]] variable_lookup process_variables();

} // namespace troupe
