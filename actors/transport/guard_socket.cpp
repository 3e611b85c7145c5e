#include <troupe/actors/transport/guard_socket.hpp>

#include <troupe/device/error.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace troupe {

namespace {

constexpr int listen_backlog = 128;

guard_socket new_guard_socket(int family) noexcept {
  return guard_socket{::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
}

void set_option(int descriptor, int level, int name, int value) noexcept {
  static_cast<void>(setsockopt(descriptor, level, name, &value, sizeof value));
}

[[noreturn]] void refuse_to_listen(const guard_address& where, const char* call) {
  const int code = errno;
  throw exception{
      error{.code = errc::invalid_argument,
            .text = "cannot listen at " + where.text() +
                    (code == EADDRINUSE ? ": another program does; choose another port or end it"
                                        : ": choose an address of this machine and a port that you may use"),
            .call = call,
            .native_code = code,
            .native_text = std::strerror(code)}};
}

} // namespace

guard_socket::~guard_socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

guard_socket listen_at(const guard_address& where) {
  guard_socket made = new_guard_socket(where.family());
  if (!made) refuse_to_listen(where, "socket");
  set_option(made.descriptor(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(made.descriptor(), where.raw(), where.length()) != 0) refuse_to_listen(where, "bind");
  if (::listen(made.descriptor(), listen_backlog) != 0) refuse_to_listen(where, "listen");
  return made;
}

std::pair<guard_socket, guard_socket> connected_sockets() {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw exception{error{.code = errc::internal,
                          .text = "a connection within this process could not be made: raise its limit of open files "
                                  "(ulimit -n)",
                          .call = "socketpair",
                          .native_code = errno,
                          .native_text = std::strerror(errno)}};
  return {guard_socket{ends[0]}, guard_socket{ends[1]}};
}

guard_socket begin_connect(const guard_address& where) noexcept {
  guard_socket made = new_guard_socket(where.family());
  if (!made) return made;
  if (::connect(made.descriptor(), where.raw(), where.length()) == 0 || errno == EINPROGRESS) return made;
  const int code = errno;
  made = guard_socket{};
  errno = code;
  return made;
}

int connect_result(int descriptor) noexcept {
  int code = 0;
  socklen_t length = sizeof code;
  return getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &length) == 0 ? code : errno;
}

void watch_peer(int descriptor, std::chrono::milliseconds patience) noexcept {
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(patience.count()));
}

std::string connect_failure_text(int native_code) {
  switch (native_code) {
    case ECONNREFUSED: return "connection refused: no process listens there";
    case EHOSTUNREACH:
    case ENETUNREACH: return "there is no route to it";
    case ETIMEDOUT: return "it does not answer";
    case EMFILE:
    case ENFILE: return "this process has no file descriptors left";
    default: return std::strerror(native_code);
  }
}

} // namespace troupe
