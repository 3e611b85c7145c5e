#include <troupe/processes/transport/shared_memory/local_socket.hpp>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

namespace troupe {

namespace {

struct abstract_address {
  sockaddr_un native{};
  socklen_t size = 0;

  explicit abstract_address(std::string_view name) noexcept {
    native.sun_family = AF_UNIX;
    const std::size_t length = std::min(name.size(), sizeof native.sun_path - 1);
    name.copy(native.sun_path + 1, length);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&native); }
};

file_descriptor make_socket() noexcept {
  return file_descriptor{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
}

} // namespace

bool is_of_this_user(const file_descriptor& socket) noexcept {
  ucred who{};
  socklen_t size = sizeof who;
  return ::getsockopt(socket.native(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
         is_admissible_peer(who.uid, ::geteuid());
}

file_descriptor listen_locally(std::string_view name, int pending) noexcept {
  file_descriptor made = make_socket();
  const abstract_address address{name};
  if (made && ::bind(made.native(), address.get(), address.size) == 0 && ::listen(made.native(), pending) == 0)
    return made;
  return {};
}

file_descriptor accept_locally(const file_descriptor& listener) noexcept {
  for (;;) {
    file_descriptor one{::accept4(listener.native(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (one || (errno != EINTR && errno != ECONNABORTED)) return one;
  }
}

file_descriptor connect_locally(std::string_view name) noexcept {
  file_descriptor made = make_socket();
  const abstract_address address{name};
  if (!made || ::connect(made.native(), address.get(), address.size) != 0 || !is_of_this_user(made)) return {};
  return made;
}

} // namespace troupe
