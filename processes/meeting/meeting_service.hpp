/// The service of a node at which ranks in several processes exchange the scratch of their one-shot kernels. It runs in
/// the process that orders the requests of that node's ranks: the controller, or `troupe order-service`.
#pragma once

#include <troupe/device/file_descriptor.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/processes/meeting/meeting_table.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace troupe {

/// Returns the address of the service beside the controller with this port. It is beside that of the order_gate, so
/// that neither waits for the other: this one is answered while the controller is busy.
[[nodiscard]] std::string meeting_address(std::uint16_t port);

struct meeting_service_limits {
  meeting_limits meetings{};
  std::size_t connections = 256;                  ///< More are refused.
  nanoseconds admission{std::chrono::seconds{5}}; ///< A connection that has said nothing for so long is closed.
};

/// Serves in a thread of its own ("troupe/meetings"), which sleeps while nobody meets. Connections of other users are
/// refused. Nothing that a connection sends ends the thread: the connection is closed, and with it its meeting.
/// Threads: construct and destroy it on any.
class meeting_service {
public:
  /// Listens at \p address, as local_socket.hpp does. Errors: unsupported (no such sockets; another process has the
  /// address; no descriptor is left), out_of_memory.
  explicit meeting_service(const std::string& address, const meeting_service_limits& limits = {});
  meeting_service(const meeting_service&) = delete;
  meeting_service& operator=(const meeting_service&) = delete;
  /// Ends all meetings: their ranks are told that the service has ended.
  ~meeting_service();

private:
  struct client {
    file_descriptor socket;
    time_point until; ///< Until it must have come to a meeting.
  };

  void run();
  void accept(time_point now);
  void read(meeting_table::connection from, time_point now);
  void send();
  void drop(meeting_table::connection one);
  /// Closes the connections that have come to no meeting in time. Returns when to look again.
  [[nodiscard]] time_point expire(time_point now);

  const meeting_service_limits limits_;
  file_descriptor listener_;
  file_descriptor stopping_; ///< An eventfd that the destructor writes.
  meeting_table table_;
  std::map<meeting_table::connection, client> clients_;
  meeting_table::connection last_ = 0;
  worker thread_; ///< Last: it uses the other members.
};

} // namespace troupe
