/// Peers of a guard that are no guards: a client and a server on loopback, with blocking sockets that give up after ten
/// seconds (and are interrupted, having such a limit, when the process is stopped and goes on: EINTR).
#pragma once

#include <troupe/actors/transport/guard_socket.hpp>

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

/// A BASP frame of CAF's: a direct message with \p payload_bytes of payload, which repeats itself every 4,099 bytes and
/// differs by \p seed.
inline bytes basp_frame(std::uint32_t payload_bytes, std::uint8_t seed = 0) {
  bytes made(32);
  made[0] = 2;
  for (std::size_t i = 0; i < 4; ++i) made[4 + i] = static_cast<std::uint8_t>(payload_bytes >> (24 - 8 * i));
  made[31] = 1;
  bytes pattern(4'099);
  for (std::size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<std::uint8_t>(seed + i + (i >> 8u));
  const std::size_t whole = made.size() + payload_bytes;
  made.reserve(whole);
  while (made.size() < whole) { // in pieces: sanitizers take their time over every single byte
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
    set_patience(socket_.descriptor());
    const guard_address there = guard_address::loopback(port);
    if (::connect(socket_.descriptor(), there.raw(), there.length()) != 0)
      throw std::runtime_error{"a test's client could not connect"};
  }

  /// The end that a dialer gave.
  explicit loopback_client(guard_socket connected) : socket_{std::move(connected)} {
    set_patience(socket_.descriptor());
    ::fcntl(socket_.descriptor(), F_SETFL, 0); // blocking
  }

  /// False where the other side is gone.
  bool send(std::span<const std::uint8_t> what) {
    while (!what.empty()) {
      const ssize_t sent = TEMP_FAILURE_RETRY(::send(socket_.descriptor(), what.data(), what.size(), MSG_NOSIGNAL));
      if (sent <= 0) return false;
      what = what.subspan(static_cast<std::size_t>(sent));
    }
    return true;
  }

  /// Up to \p most bytes: fewer where the other side ended before.
  bytes receive(std::size_t most) {
    bytes got(most);
    std::size_t count = 0;
    while (count < most) {
      const ssize_t came = TEMP_FAILURE_RETRY(::recv(socket_.descriptor(), got.data() + count, most - count, 0));
      if (came < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        throw std::runtime_error{"nothing came in ten seconds"};
      if (came <= 0) break;
      count += static_cast<std::size_t>(came);
    }
    got.resize(count);
    return got;
  }

  /// Whether the other side ends the connection, within ten seconds, without another byte.
  bool is_ended() { return receive(1).empty(); }

  void finish() { ::shutdown(socket_.descriptor(), SHUT_WR); }
  [[nodiscard]] int descriptor() const { return socket_.descriptor(); }

private:
  guard_socket socket_;
};

/// Sends back whatever it gets, on any number of connections, until it is destroyed.
class echo_server {
public:
  echo_server() : listening_{listen_at(guard_address::loopback(0))} {
    port_ = guard_address::of_socket(listening_.descriptor()).port();
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
    pollfd look{listening_.descriptor(), POLLIN, 0};
    while (!stopping_) {
      if (::poll(&look, 1, 20) <= 0) continue;
      const int descriptor = ::accept4(listening_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
      if (descriptor < 0) continue;
      ++accepted_;
      peers.emplace_back([this, descriptor] { echo(guard_socket{descriptor}); });
    }
    for (std::thread& one : peers) one.join();
  }

  void echo(guard_socket peer) {
    set_patience(peer.descriptor());
    bytes buffer(64u << 10u);
    pollfd look{peer.descriptor(), POLLIN, 0};
    while (!stopping_) {
      if (::poll(&look, 1, 20) <= 0) continue;
      const ssize_t came = TEMP_FAILURE_RETRY(::recv(peer.descriptor(), buffer.data(), buffer.size(), 0));
      if (came <= 0) return;
      received_bytes_ += static_cast<std::size_t>(came);
      for (std::size_t sent = 0; sent < static_cast<std::size_t>(came);) {
        const ssize_t now = TEMP_FAILURE_RETRY(
            ::send(peer.descriptor(), buffer.data() + sent, static_cast<std::size_t>(came) - sent, MSG_NOSIGNAL));
        if (now <= 0) return;
        sent += static_cast<std::size_t>(now);
      }
    }
  }

  guard_socket listening_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int> accepted_{0};
  std::atomic<std::size_t> received_bytes_{0};
  std::thread thread_;
};

/// A port of this machine that nobody listens at.
inline std::uint16_t free_port() {
  const guard_socket held = listen_at(guard_address::loopback(0));
  return guard_address::of_socket(held.descriptor()).port();
}

} // namespace troupe::tests
