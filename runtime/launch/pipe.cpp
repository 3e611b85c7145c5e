#include <troupe/runtime/launch/pipe.hpp>

#include <troupe/device/error.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace troupe::launch {

namespace {

constexpr const char* out_of_descriptors = "no file descriptor is left: raise the limit (ulimit -n)";

/// Returns a descriptor above 2. A child's 0, 1 and 2 are set one after the other, which must not overwrite one that is
/// still needed.
file_descriptor above_standard(file_descriptor given) {
  if (given.native() > STDERR_FILENO) return given;
  file_descriptor moved{::fcntl(given.native(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1)};
  if (!moved) throw_system_error("fcntl", out_of_descriptors);
  return moved;
}

} // namespace

pipe_ends make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_system_error("pipe2", out_of_descriptors);
  file_descriptor reading{ends[0]};
  file_descriptor writing{ends[1]};
  return {above_standard(std::move(reading)), above_standard(std::move(writing))};
}

void make_nonblocking(const file_descriptor& descriptor) {
  const int flags = ::fcntl(descriptor.native(), F_GETFL);
  if (flags < 0 || ::fcntl(descriptor.native(), F_SETFL, flags | O_NONBLOCK) != 0)
    throw_system_error("fcntl", "a pipe could not be made non-blocking");
}

void throw_system_error(const char* call, const std::string& text) {
  const int code = errno;
  throw exception{error{
      .code = errc::unsupported, .text = text, .call = call, .native_code = code, .native_text = std::strerror(code)}};
}

} // namespace troupe::launch
