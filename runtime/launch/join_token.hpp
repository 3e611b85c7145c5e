/// The secret with which the processes of a job authenticate each other.
#pragma once

#include <string>

namespace troupe::launch {

/// Returns 32 bytes from the system's random generator as 64 hexadecimal digits. Never print it, and never put it on a
/// command line, which everybody on the machine can read. Errors: unsupported.
[[nodiscard]] std::string make_join_token();

} // namespace troupe::launch
