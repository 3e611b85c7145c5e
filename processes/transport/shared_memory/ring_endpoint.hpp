/// The rank's end of a ring_connection in a process that sends from many threads.
#pragma once

#include <troupe/completion/completion_settings.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/processes/transport/shared_memory/ring_connection.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace troupe {

/// The functions that a ring_endpoint calls on its thread.
struct ring_listener {
  /// Handles a message. Returns whether to continue: after false nothing more is received.
  std::function<bool(std::string_view)> receive;
  /// Called once when sending or receiving has failed. Nothing more is sent or received.
  std::function<void(const error&)> failed;
  std::function<void()> enter{}; ///< Called first, e.g. to name the thread. May be empty.
};

/// Sends from any thread, and receives in a thread of its own ("troupe/rings"), which spins and parks by a
/// wait_profile. That thread also writes messages that did not fit into the ring. A sender waits at most for other
/// senders, for the time of a copy.
class ring_endpoint {
public:
  /// Starts the thread. Errors: out_of_memory.
  ring_endpoint(ring_connection rings, const wait_profile& wait, ring_listener to);
  /// Ends the thread and waits for it, unless called by it.
  ~ring_endpoint();
  ring_endpoint(const ring_endpoint&) = delete;
  ring_endpoint& operator=(const ring_endpoint&) = delete;

  /// Returns a function that sends a message, from any thread. It may outlive the endpoint, and then does nothing. A
  /// failure is reported by the endpoint's thread.
  [[nodiscard]] std::function<void(std::string)> sender() const;
  /// Makes the thread end, without waiting for it. A call of ring_listener::receive() in progress is completed.
  void stop() noexcept;

private:
  struct core;

  std::shared_ptr<core> core_;
  worker thread_;
};

} // namespace troupe
