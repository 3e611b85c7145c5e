#include <troupe/device/error.hpp>
#include <troupe/processes/transport/shared_memory/peer_process.hpp>
#include <troupe/processes/transport/shared_memory/shared_memory.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace troupe {

peer_process::peer_process(pid_t id) : id_{id}, handle_{static_cast<int>(::syscall(SYS_pidfd_open, id, 0))} {
  if (handle_) return;
  if (errno == ESRCH) throw exception{errc::rank_lost, "process " + std::to_string(id) + " has ended"};
  throw_memory_failure("pidfd_open", "process " + std::to_string(id) +
                                         " cannot be monitored: this needs Linux 5.3 or newer, and a descriptor");
}

peer_process peer_process::of_socket(const file_descriptor& socket) {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(socket.native(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
    throw_memory_failure("getsockopt(SO_PEERCRED)", "the process at the other end of a socket is unknown");
#ifdef SO_PEERPIDFD // Linux 6.5: without the window in which the process could end and its number be used again
  int handle = -1;
  size = sizeof handle;
  if (::getsockopt(socket.native(), SOL_SOCKET, SO_PEERPIDFD, &handle, &size) == 0) {
    peer_process made;
    made.id_ = who.pid;
    made.handle_ = file_descriptor{handle};
    return made;
  }
#endif
  return peer_process{who.pid};
}

bool peer_process::has_ended() const noexcept {
  if (!handle_) return false;
  pollfd one{.fd = handle_.native(), .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, 0) > 0;
}

} // namespace troupe
