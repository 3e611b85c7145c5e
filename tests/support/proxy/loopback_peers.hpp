/// A client and a server on loopback that stand for peers of a proxy. Their blocking sockets time out after ten
/// seconds. Because of that time limit, stopping and continuing the process interrupts their calls with EINTR.
#pragma once

#include <troupe/actors/transport/proxy_socket.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace troupe::tests {

using bytes = std::vector<std::uint8_t>;

/// Returns a BASP frame of CAF: a direct message with \p payload_bytes of payload, whose pattern repeats every 4,099
/// bytes and depends on \p seed.
inline bytes basp_frame(std::uint32_t payload_bytes, std::uint8_t seed = 0) {
  bytes made(32);
  made[0] = 2;
  for (std::size_t i = 0; i < 4; ++i) made[4 + i] = static_cast<std::uint8_t>(payload_bytes >> (24 - 8 * i));
  made[31] = 1;
  bytes pattern(4'099);
  for (std::size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<std::uint8_t>(seed + i + (i >> 8u));
  const std::size_t whole = made.size() + payload_bytes;
  made.reserve(whole);
  while (made.size() < whole) { // in pieces, because single bytes are slow under sanitizers
    const std::size_t piece = std::min(pattern.size(), whole - made.size());
    made.insert(made.end(), pattern.begin(), pattern.begin() + static_cast<std::ptrdiff_t>(piece));
  }
  return made;
}

inline void set_patience(int descriptor) {
  const timeval patience{.tv_sec = 10, .tv_usec = 0};
  setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

/// A blocking client.
class loopback_client {
public:
  explicit loopback_client(std::uint16_t port) : socket_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
    set_patience(socket_.native());
    const proxy_address there = proxy_address::loopback(port);
    if (::connect(socket_.native(), there.raw(), there.length()) != 0)
      throw std::runtime_error{"the test's client could not connect"};
  }

  /// Uses the connected socket that a dialer returned.
  explicit loopback_client(file_descriptor connected) : socket_{std::move(connected)} {
    set_patience(socket_.native());
    ::fcntl(socket_.native(), F_SETFL, 0); // blocking
  }

  /// Returns false if the peer has closed the connection.
  bool send(std::span<const std::uint8_t> what) {
    while (!what.empty()) {
      const ssize_t sent = TEMP_FAILURE_RETRY(::send(socket_.native(), what.data(), what.size(), MSG_NOSIGNAL));
      if (sent <= 0) return false;
      what = what.subspan(static_cast<std::size_t>(sent));
    }
    return true;
  }

  /// Receives \p most bytes, or fewer if the peer closes the connection before. Throws after ten seconds without data.
  bytes receive(std::size_t most) {
    bytes got(most);
    std::size_t count = 0;
    while (count < most) {
      const ssize_t came = TEMP_FAILURE_RETRY(::recv(socket_.native(), got.data() + count, most - count, 0));
      if (came < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        throw std::runtime_error{"no data arrived in ten seconds"};
      if (came <= 0) break;
      count += static_cast<std::size_t>(came);
    }
    got.resize(count);
    return got;
  }

  /// Returns whether the peer closes the connection within ten seconds without sending another byte.
  bool is_ended() { return receive(1).empty(); }

  void finish() { ::shutdown(socket_.native(), SHUT_WR); }
  [[nodiscard]] int descriptor() const { return socket_.native(); }

private:
  file_descriptor socket_;
};

/// Sends back all received bytes, on any number of connections, until it is destroyed.
class echo_server {
public:
  echo_server() : listening_{listen_at(proxy_address::loopback(0))} {
    port_ = proxy_address::of_socket(listening_.native()).port();
    thread_ = std::thread{[this] { accept_all(); }};
  }
  echo_server(const echo_server&) = delete;
  echo_server& operator=(const echo_server&) = delete;
  ~echo_server() {
    stopping_ = true;
    thread_.join();
  }

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] int accepted() const { return accepted_; }
  [[nodiscard]] std::size_t received_bytes() const { return received_bytes_; }

private:
  void accept_all() {
    std::vector<std::thread> peers;
    pollfd look{listening_.native(), POLLIN, 0};
    while (!stopping_) {
      if (::poll(&look, 1, 20) <= 0) continue;
      const int descriptor = ::accept4(listening_.native(), nullptr, nullptr, SOCK_CLOEXEC);
      if (descriptor < 0) continue;
      ++accepted_;
      peers.emplace_back([this, descriptor] { echo(file_descriptor{descriptor}); });
    }
    for (std::thread& one : peers) one.join();
  }

  void echo(file_descriptor peer) {
    set_patience(peer.native());
    bytes buffer(64u << 10u);
    pollfd look{peer.native(), POLLIN, 0};
    while (!stopping_) {
      if (::poll(&look, 1, 20) <= 0) continue;
      const ssize_t came = TEMP_FAILURE_RETRY(::recv(peer.native(), buffer.data(), buffer.size(), 0));
      if (came <= 0) return;
      received_bytes_ += static_cast<std::size_t>(came);
      for (std::size_t sent = 0; sent < static_cast<std::size_t>(came);) {
        const ssize_t now = TEMP_FAILURE_RETRY(
            ::send(peer.native(), buffer.data() + sent, static_cast<std::size_t>(came) - sent, MSG_NOSIGNAL));
        if (now <= 0) return;
        sent += static_cast<std::size_t>(now);
      }
    }
  }

  file_descriptor listening_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int> accepted_{0};
  std::atomic<std::size_t> received_bytes_{0};
  std::thread thread_;
};

/// Returns a port of this machine on which no process listens.
inline std::uint16_t free_port() {
  const file_descriptor held = listen_at(proxy_address::loopback(0));
  return proxy_address::of_socket(held.native()).port();
}

} // namespace troupe::tests
