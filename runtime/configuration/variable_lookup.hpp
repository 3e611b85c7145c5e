/// A source of environment variables, so that tests and embedding programs can replace the process's own.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace troupe {

/// Returns the value of the variable called \p name, or nothing if it is unset or empty.
using variable_lookup = std::function<std::optional<std::string>(const std::string& name)>;

/// Returns a lookup in this process's environment. Threads: any, as long as none changes the environment meanwhile.
[[nodiscard]] variable_lookup process_variables();

} // namespace troupe
