/// The Unix socket through which a controller passes the rings of ranks to the processes of its host.
///
/// A process connects and sends a nonce, and then puts the same nonce into its request to join, whose connection is
/// authenticated. The controller claims the connection by the nonce when it admits the process. The nonce is sent
/// before the request to join, so it has arrived when the request arrives. A process that has joined connects again
/// when its connection was closed, and then sends the nonce in a gate_notice. An unclaimed connection has no effect
/// (SEC-2).
#pragma once

#include <troupe/device/file_descriptor.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/transport/shared_memory/local_socket.hpp>
#include <troupe/processes/transport/shared_memory/shared_ring.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

namespace troupe {

/// Limits of connections that have not been claimed.
struct gate_limits {
  std::size_t connections = 64;                  ///< When there are more, the oldest ones are closed.
  nanoseconds patience{std::chrono::seconds{5}}; ///< Older connections are closed.
};

/// Holds the connections that no process has claimed yet. \p Connection is movable. There are neither sockets nor a
/// clock here. Threads: one at a time.
template <class Connection>
class unclaimed_connections {
public:
  explicit unclaimed_connections(const gate_limits& limits = {}) : limits_{limits} {}

  void add(Connection one, time_point now) {
    all_.push_back({std::move(one), {}, now});
    while (all_.size() > limits_.connections) all_.pop_front();
  }
  /// Closes connections that have waited longer than gate_limits::patience.
  void expire(time_point now) {
    while (!all_.empty() && now - all_.front().since > limits_.patience) all_.pop_front();
  }
  /// Calls \p read for each connection that has not named its nonce. \p read returns whether to keep the connection,
  /// and stores the nonce, if there is one, in its second argument.
  template <class Read>
  void look(Read read) {
    std::erase_if(all_, [&](entry& one) { return !one.nonce && !read(one.connection, one.nonce); });
  }
  /// Removes and returns the connection that has named \p nonce. If several have, all are dropped: one of them is not
  /// the process that has made the nonce.
  [[nodiscard]] std::optional<Connection> claim(const ring_session& nonce) {
    std::optional<Connection> found;
    std::size_t count = 0;
    std::erase_if(all_, [&](entry& one) {
      if (one.nonce != nonce) return false;
      if (++count == 1) found = std::move(one.connection);
      return true;
    });
    return count == 1 ? std::move(found) : std::nullopt;
  }
  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }

private:
  struct entry {
    Connection connection;
    std::optional<ring_session> nonce;
    time_point since;
  };

  gate_limits limits_;
  std::deque<entry> all_; ///< The oldest first.
};

/// Returns the session of the rings that are handed over for one epoch. Rings of another epoch are refused (EPO-1).
[[nodiscard]] constexpr ring_session session_in(const ring_session& nonce, epoch of) noexcept {
  return {{nonce.words[0], nonce.words[1] ^ of.value()}};
}

/// A process's connection to the gate of its controller.
struct gate_connection {
  file_descriptor socket;
  ring_session nonce;
};
/// Returns whether the other end has closed the connection.
[[nodiscard]] bool has_left(const gate_connection& one) noexcept;

/// The controller's side: an abstract Unix socket, named after the port of the controller, so that the processes of one
/// network namespace find it. Never blocks. Threads: one at a time.
class order_gate {
public:
  /// Listens. Errors: unsupported (no such sockets; another process has the name; no descriptor is left).
  explicit order_gate(std::uint16_t port, const gate_limits& limits = {});

  /// Accepts the connections that are pending, reads the nonces that have arrived, and closes the connections that have
  /// waited too long, and those of other users. Call it often, so that connections of other users cannot fill the
  /// queue.
  void drain(time_point now);
  /// Returns the connection of the process that has named \p nonce, or nullopt. Call it when the process is admitted.
  [[nodiscard]] std::optional<gate_connection> claim(const ring_session& nonce, time_point now);

private:
  file_descriptor listener_;
  unclaimed_connections<file_descriptor> unclaimed_;
};

/// The process's side: connects to the gate of the controller with this port and names a new nonce. Never blocks.
/// Returns nullopt if there is no gate (another host or network namespace, or a controller that has none), if its
/// process is of another user, or if it is busy. A process that is not the controller may own the socket's name. It
/// learns only the nonce, which it cannot use, because the request to join goes to the controller.
[[nodiscard]] std::optional<gate_connection> knock_at_gate(std::uint16_t port) noexcept;

} // namespace troupe
