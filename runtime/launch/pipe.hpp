/// Creates the pipes between a launcher and its processes.
#pragma once

#include <troupe/device/file_descriptor.hpp>

#include <string>

namespace troupe::launch {

struct pipe_ends {
  file_descriptor reading;
  file_descriptor writing;
};

/// Creates a pipe. Both ends are closed on exec and are never 0, 1 or 2, even if those are free. Errors: unsupported if
/// there are no more descriptors.
[[nodiscard]] pipe_ends make_pipe();

/// Makes reads and writes of \p descriptor return at once.
void make_nonblocking(const file_descriptor& descriptor);

/// Throws an error with code unsupported and errno's number and text. \p text names the remedy.
[[noreturn]] void throw_system_error(const char* call, const std::string& text);

} // namespace troupe::launch
