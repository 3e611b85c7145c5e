/// Notices the end of another process, which may be any process of this host.
#pragma once

#include <troupe/device/file_descriptor.hpp>

#include <sys/types.h>

namespace troupe {

/// A handle to a process. Unlike its number, the handle never means another process (pidfd).
class peer_process {
public:
  /// No process; has_ended() returns false.
  peer_process() = default;
  /// Errors: rank_lost (it has ended), unsupported (a kernel older than Linux 5.3), out_of_memory.
  explicit peer_process(pid_t id);
  /// Returns the process that has connected the other end of a Unix socket, or made the pair. Errors: as above.
  [[nodiscard]] static peer_process of_socket(const file_descriptor& socket);

  [[nodiscard]] pid_t id() const noexcept { return id_; }
  /// Returns whether it has ended, reaped or not. A system call.
  [[nodiscard]] bool has_ended() const noexcept;

private:
  pid_t id_ = 0;
  file_descriptor handle_;
};

} // namespace troupe
