#include <troupe/actors/transport/proxy_socket.hpp>

#include <troupe/device/error.hpp>
#include <troupe/device/file_descriptor.hpp>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace troupe {

namespace {

constexpr std::size_t most_addresses = 4;

bool is_ipv4_loopback(std::uint32_t in_network_order) {
  return ntohl(in_network_order) >> 24 == 127;
}

} // namespace

proxy_address proxy_address::loopback(std::uint16_t port) noexcept {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_port = htons(port);
  made.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return {reinterpret_cast<const sockaddr*>(&made), sizeof made};
}

proxy_address proxy_address::of_socket(int descriptor) {
  proxy_address made;
  made.length_ = sizeof made.storage_;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&made.storage_), &made.length_) != 0)
    throw exception{error{.code = errc::internal,
                          .text = "the address of a socket could not be read",
                          .call = "getsockname",
                          .native_code = errno,
                          .native_text = std::strerror(errno)}};
  return made;
}

proxy_address::proxy_address(const sockaddr* raw, socklen_t length) noexcept
  : length_{std::min<socklen_t>(length, sizeof storage_)} {
  std::memcpy(&storage_, raw, length_);
}

std::uint16_t proxy_address::port() const noexcept {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(storage_).sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage_).sin6_port);
  return 0;
}

bool proxy_address::is_loopback() const noexcept {
  if (family() == AF_INET) return is_ipv4_loopback(reinterpret_cast<const sockaddr_in&>(storage_).sin_addr.s_addr);
  if (family() != AF_INET6) return false;
  const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr;
  if (IN6_IS_ADDR_LOOPBACK(&six)) return true;
  if (!IN6_IS_ADDR_V4MAPPED(&six)) return false;
  std::uint32_t four = 0;
  std::memcpy(&four, &six.s6_addr[12], sizeof four);
  return is_ipv4_loopback(four);
}

std::string proxy_address::text() const {
  std::array<char, NI_MAXHOST> host{};
  if (getnameinfo(raw(), length_, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "unknown";
  return host_and_port(host.data(), port());
}

std::vector<proxy_address> resolve_address(const std::string& host, std::uint16_t port) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const int problem =
      host.empty() ? EAI_NONAME : getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &first);
  if (problem != 0)
    throw exception{
        error{.code = errc::invalid_argument,
              .text = "unknown host '" + host + "': give a name that this machine can resolve, or an IP address",
              .call = "getaddrinfo",
              .native_code = problem,
              .native_text = gai_strerror(problem)}};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner{first, &freeaddrinfo};
  std::vector<proxy_address> found;
  for (const addrinfo* one = first; one != nullptr && found.size() < most_addresses; one = one->ai_next)
    if (one->ai_family == AF_INET || one->ai_family == AF_INET6) found.emplace_back(one->ai_addr, one->ai_addrlen);
  if (found.empty()) throw exception{errc::invalid_argument, "'" + host + "' has no IP address"};
  return found;
}

std::string host_and_port(std::string_view host, std::uint16_t port) {
  const bool is_six = host.find(':') != std::string_view::npos;
  return (is_six ? "[" : "") + std::string{host} + (is_six ? "]:" : ":") + std::to_string(port);
}

namespace {

constexpr int listen_backlog = 128;

file_descriptor new_socket(int family) noexcept {
  return file_descriptor{::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
}

void set_option(int descriptor, int level, int name, int value) noexcept {
  static_cast<void>(setsockopt(descriptor, level, name, &value, sizeof value));
}

[[noreturn]] void refuse_to_listen(const proxy_address& where, const char* call) {
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

file_descriptor listen_at(const proxy_address& where) {
  file_descriptor made = new_socket(where.family());
  if (!made) refuse_to_listen(where, "socket");
  set_option(made.native(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(made.native(), where.raw(), where.length()) != 0) refuse_to_listen(where, "bind");
  if (::listen(made.native(), listen_backlog) != 0) refuse_to_listen(where, "listen");
  return made;
}

std::pair<file_descriptor, file_descriptor> connected_sockets() {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw exception{error{.code = errc::internal,
                          .text = "a connection within this process could not be made: raise its limit of open files "
                                  "(ulimit -n)",
                          .call = "socketpair",
                          .native_code = errno,
                          .native_text = std::strerror(errno)}};
  return {file_descriptor{ends[0]}, file_descriptor{ends[1]}};
}

file_descriptor begin_connect(const proxy_address& where) noexcept {
  file_descriptor made = new_socket(where.family());
  if (!made) return made;
  if (::connect(made.native(), where.raw(), where.length()) == 0 || errno == EINPROGRESS) return made;
  const int code = errno;
  made = file_descriptor{};
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
