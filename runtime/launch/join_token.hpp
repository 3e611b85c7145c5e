/// The secret by which the processes of a job know each other.
#pragma once

#include <string>

namespace troupe::launch {

/// 32 bytes of the system's randomness, as 64 hexadecimal digits. Never print it, nor put it on a command line, which
/// everybody on the machine can read. Errors: unsupported.
[[nodiscard]] std::string make_join_token();

} // namespace troupe::launch
