/// Keeps a process connected to the controller of a world, whether it is a member of the world or not.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/control/control_session.hpp>
#include <troupe/processes/membership/controller_search.hpp>
#include <troupe/processes/transport/transport.hpp>
#include <troupe/runtime/configuration/configuration.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// Connects to a controller, and reconnects when the connection is lost. Where several addresses are given
/// (control_addresses()), it tries one after the other: controllers that stand by listen at none. It gives up when the
/// controller refuses the process or has been unreachable for too long. While the controller is unreachable, it logs
/// the reason as a warning after 3 s (or a quarter of control.patience, if that is shorter), and again after twice that
/// time, and so on. Threads: safe from any.
class controller_connection {
public:
  using finding = controller_finding;

  /// Callbacks, called by its threads; none is called concurrently with itself. They must not block.
  struct hooks {
    std::function<std::string()> introduction{}; ///< Returns the first message of each connection.
    std::function<void(std::string_view bytes)> receive{};
    /// Called when the connection has ended or, if it was not \p admitted, could not be made.
    std::function<void(const transport_fault& why, bool admitted)> disconnected{};
    /// Called every 20 ms, also without a connection.
    std::function<finding()> tick{};
    /// Called once when it has given up, after the last tick.
    std::function<void(const error& why)> gave_up = [](const error&) {};
  };

  /// Returns the hooks with which a connection serves \p session, whose services send through that connection.
  [[nodiscard]] static hooks hooks_of(const std::shared_ptr<control_session>& session);

  /// \p patience: how long the controller may be unreachable. Errors: invalid_argument (an address; certificates or
  /// token missing), missing (certificate files).
  controller_connection(const control_settings& settings, std::string token, nanoseconds patience);
  /// Joins its threads, after which no hook is called.
  ~controller_connection();
  controller_connection(const controller_connection&) = delete;
  controller_connection& operator=(const controller_connection&) = delete;

  /// Begins to connect. Call it once. \p thread_name: the name of the thread that calls tick().
  void begin(hooks what, const char* thread_name);
  /// Sends a message, if there is a connection. Never blocks.
  void send(std::string bytes);
  /// Ends the connection and the threads, after which no hook is called.
  void stop();

  /// Returns why there is no connection; nullopt if there is one.
  [[nodiscard]] std::optional<std::string> obstacle() const;

  /// Waits until it has given up or tick() has returned finding::over, for at most \p at_most. Returns the reason;
  /// nullopt if neither has happened.
  [[nodiscard]] std::optional<error> wait_ended(nanoseconds at_most);

private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

} // namespace troupe
