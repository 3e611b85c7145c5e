/// The control transport: a listener for the controller and a dialer for each process. They exchange messages, which
/// are opaque byte strings, over TCP, with mutual TLS beyond loopback, and only with peers that prove that they know
/// the join token.
#pragma once

#include <troupe/processes/transport/transport_options.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace troupe {

/// Identifies an admitted connection of a listener. It is not used again.
enum class peer_id : std::uint64_t {};

/// The options of a transport_listener. The functions are called by its thread and must neither block nor stop it.
struct transport_listener_options {
  transport_mode mode = transport_mode::plain;
  std::string address = "127.0.0.1"; ///< A name or an IP address of this machine.
  std::uint16_t port = 0;            ///< 0: any free port.
  std::string version{};             ///< The version of troupe. Peers with a different version are refused.
  transport_credentials credentials{};
  transport_limits limits{};
  std::function<void(peer_id from, std::string bytes)> on_message{};
  /// Called once for each admitted peer whose connection has ended; nothing follows from that peer.
  std::function<void(peer_id which, const transport_fault& why)> on_lost{};
  transport_event_sink on_event{};
};

/// Admits peers and exchanges messages with them.
///
/// Order: messages of one peer are delivered, and messages to one peer are sent, in order. Lifetime: the destructor
/// stops it. Threads: it has one thread; send may be called from any, the others from one at a time. Errors:
/// invalid_argument for plain mode beyond loopback (SEC-1), for an address or port that is not available and for
/// invalid credentials; missing for files that cannot be read; internal.
class transport_listener {
public:
  explicit transport_listener(transport_listener_options options);
  transport_listener(const transport_listener&) = delete;
  transport_listener& operator=(const transport_listener&) = delete;
  ~transport_listener();

  /// Returns the port at which it listens.
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// Returns the address at which it listens, for example "10.0.0.1:7000".
  [[nodiscard]] const std::string& address() const noexcept;

  /// Sends \p bytes, at least one, without waiting. Does nothing if the peer's connection has ended. A peer for which
  /// more than limits.queue_bytes wait is disconnected.
  void send(peer_id to, std::string bytes);

  /// Closes all connections and returns when its thread has ended. Must not be called by its thread. A second call does
  /// nothing. on_lost is not called for connections that this closes.
  void stop() noexcept;

private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

/// The options of a transport_dialer.
struct transport_dialer_options {
  transport_mode mode = transport_mode::plain;
  /// The controller's host: an IP address, or a name, which is looked up for each connection.
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  std::string version{}; ///< The version of troupe.
  transport_credentials credentials{};
  transport_limits limits{};
  transport_event_sink on_event{};
};

/// The functions that a dialer's thread calls for one connection. They must neither block nor stop the dialer.
struct dial_handlers {
  std::function<void()> on_admitted{};
  std::function<void(std::string bytes)> on_message{};
  /// Called once if the connection could not be made or has ended; nothing follows. The text is a sentence for people:
  /// "the controller at 10.0.0.1:7000 refused the join token".
  std::function<void(const transport_fault& why)> on_lost{};
};

/// Connects a process to the controller. It does not listen, so no other process can use its certificate and token.
///
/// Order, lifetime, threads: as transport_listener; connect may be called from any thread as well.
/// Errors: invalid_argument for plain mode beyond loopback (SEC-1; for a name, when it has been looked up, as
/// bad_certificate) and for invalid credentials; missing for files that cannot be read. The constructor does not fail
/// if no peer answers or the name is unknown.
class transport_dialer {
public:
  explicit transport_dialer(transport_dialer_options options);
  transport_dialer(const transport_dialer&) = delete;
  transport_dialer& operator=(const transport_dialer&) = delete;
  ~transport_dialer();

  /// Begins to connect and returns at once. Closes the connection of an earlier call, whose handlers are not called any
  /// more when those of this one are.
  void connect(dial_handlers handlers);

  /// Closes the connection, or gives the attempt up. Its handlers are not called any more. Must not be called by its
  /// thread, nor after stop().
  void leave();

  /// Sends \p bytes, at least one, without waiting. Does nothing unless the latest connection is admitted.
  void send(std::string bytes);

  /// Closes the connection and returns when its thread has ended. Must not be called by its thread. A second call does
  /// nothing. No handler is called after it.
  void stop() noexcept;

private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

} // namespace troupe
