/// A blocking client on loopback that is not a dialer, and the sockets that it needs. Its calls fail after ten seconds.
/// Because of this timeout, stopping and continuing the process interrupts them with EINTR; they are then repeated.
#pragma once

#include <troupe/device/file_descriptor.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::tests {

/// Returns bytes that repeat every 4,099 bytes and depend on \p seed.
inline std::string pattern(std::size_t bytes, unsigned seed = 0) {
  std::string unit(4'099, '\0');
  for (std::size_t i = 0; i < unit.size(); ++i) unit[i] = static_cast<char>(seed + i + (i >> 8U));
  std::string made;
  made.reserve(bytes + unit.size());
  while (made.size() < bytes) made += unit;
  made.resize(bytes);
  return made;
}

inline sockaddr_in loopback_at(std::uint16_t port) {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_port = htons(port);
  made.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return made;
}

inline std::uint16_t port_of(const file_descriptor& socket) {
  sockaddr_in made{};
  socklen_t length = sizeof made;
  getsockname(socket.native(), reinterpret_cast<sockaddr*>(&made), &length);
  return ntohs(made.sin_port);
}

inline void set_patience(int descriptor) {
  const timeval patience{.tv_sec = 10, .tv_usec = 0};
  setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

/// Returns a socket that listens at a free port. The kernel completes connections to it.
inline file_descriptor listening_socket() {
  file_descriptor made{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const sockaddr_in where = loopback_at(0);
  if (::bind(made.native(), reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0 ||
      ::listen(made.native(), 16) != 0)
    throw std::runtime_error{"a test could not listen"};
  set_patience(made.native());
  return made;
}

/// Ports that the kernel gives to nobody by itself, and that no other process gets from here.
class own_ports {
public:
  own_ports() {
    for (unsigned i = 0; i < blocks && !held_; ++i) {
      first_ = lowest + (static_cast<unsigned>(::getpid()) + i) % blocks * block_size;
      file_descriptor made{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
      sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}}; // abstract: it ends with the process
      const std::string text = "troupe's tests: ports from " + std::to_string(first_);
      text.copy(name.sun_path + 1, text.size());
      const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
      if (::bind(made.native(), reinterpret_cast<const sockaddr*>(&name), length) == 0) held_ = std::move(made);
    }
    if (!held_) throw std::runtime_error{"a test found no ports of its own"};
  }

  /// Returns one on which no socket listens. Threads: any.
  [[nodiscard]] std::uint16_t next() {
    for (unsigned i = 0; i < block_size; ++i) {
      const auto port = static_cast<std::uint16_t>(first_ + last_++ % block_size);
      const file_descriptor probe{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
      const sockaddr_in where = loopback_at(port);
      if (::bind(probe.native(), reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0) return port;
    }
    throw std::runtime_error{"a test found no free port"};
  }

private:
  static constexpr unsigned lowest = 10'000, block_size = 64, blocks = 300; ///< Below the ports of connections, 32,768.

  file_descriptor held_;
  unsigned first_ = 0;
  std::atomic<unsigned> last_{0};
};

/// Returns a port of this machine on which no socket listens. It is free until the test uses it.
inline std::uint16_t free_port() {
  static own_ports mine;
  return mine.next();
}

class loopback_client {
public:
  explicit loopback_client(std::uint16_t port) : socket_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
    set_patience(socket_.native());
    const sockaddr_in there = loopback_at(port);
    if (::connect(socket_.native(), reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0)
      throw std::runtime_error{"a test's client could not connect"};
  }

  /// Accepts a connection from \p listening, and becomes its server's end.
  explicit loopback_client(const file_descriptor& listening)
    : socket_{static_cast<int>(TEMP_FAILURE_RETRY(::accept4(listening.native(), nullptr, nullptr, SOCK_CLOEXEC)))} {
    if (!socket_) throw std::runtime_error{"no client connected within ten seconds"};
    set_patience(socket_.native());
  }

  /// Sends \p what. Returns false if the peer has closed the connection.
  bool send(std::string_view what) {
    while (!what.empty()) {
      const ssize_t sent = TEMP_FAILURE_RETRY(::send(socket_.native(), what.data(), what.size(), MSG_NOSIGNAL));
      if (sent <= 0) return false;
      what.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  /// Receives \p most bytes, or fewer if the peer closes the connection first.
  std::string receive(std::size_t most) {
    std::string got(most, '\0');
    std::size_t count = 0;
    while (count < most) {
      const ssize_t came = TEMP_FAILURE_RETRY(::recv(socket_.native(), got.data() + count, most - count, 0));
      if (came < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        throw std::runtime_error{"nothing was received within ten seconds"};
      if (came <= 0) break;
      count += static_cast<std::size_t>(came);
    }
    got.resize(count);
    return got;
  }

  /// Returns whether the peer closes the connection within ten seconds, without sending another byte.
  bool is_ended() { return receive(1).empty(); }

  void finish() { ::shutdown(socket_.native(), SHUT_WR); }
  [[nodiscard]] int descriptor() const { return socket_.native(); }

private:
  file_descriptor socket_;
};

} // namespace troupe::tests
