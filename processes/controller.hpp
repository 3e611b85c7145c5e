/// Defines the controller of a world that spans processes. It runs in the launcher, in a process of its own, or beside
/// rank 0.
#pragma once

#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/collective_settings.hpp>
#include <troupe/completion/completion_settings.hpp>
#include <troupe/processes/control/controller_terms.hpp>

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

class controller_store;

/// The options of a controller.
struct controller_options {
  controller_terms terms;
  sequencer_limits sequencing{}; ///< Used with ordering::agreed.
  /// The address to listen on: for processes of this machine, or, with certificates, also for those of other machines.
  std::string host = "127.0.0.1";
  std::uint16_t port = 0; ///< Port to listen on; 0: any free port.
  /// The controller's certificates, for mutual TLS with its processes. Without them only the join token is checked.
  /// (docs/security.md)
  std::optional<transport_credentials> certificates{};
  /// How the thread that orders the requests of this host's processes waits. Without requests it parks in any case. By
  /// default as under latency_profile::balanced, or frugal if the processes need all cores of this host.
  std::optional<wait_profile> wait{};
  /// Where the controllers of this world elect the one that decides, and keep its decisions
  /// (docs/processes.md, "Several controllers"). Null: this controller is the only one. With a store, `port` is to be
  /// set, and the order of requests belongs to the order services of the processes' hosts.
  std::shared_ptr<controller_store> store{};
};

/// Decides which processes belong to the world, forms its epochs, detects lost processes, and keeps the order of its
/// requests.
///
/// With a store it stands by until it is elected, and again when it has lost its claim. Its port is open while it is
/// elected.
///
/// Lifetime: destroying it leaves the processes without a controller; call stop() first to let them finish. With a
/// store, another controller takes over then.
/// Threads: safe from any.
class controller {
public:
  /// Functions that the controller calls. They run on a thread of the controller and must neither block nor throw.
  struct hooks {
    std::function<void(const control_event&)> heard{};
    /// Kills a process that may still be running, if possible.
    std::function<void(const process_identity&)> kill{};
    /// Called when a process has joined.
    std::function<void(const process_identity&)> joined{};
    /// Called when the world is rebuilding and has no process for this place, at most once per rebuild.
    std::function<void(int place)> wanted{};
    /// With a store: called when this controller has been elected, or stands by.
    std::function<void(bool is_elected)> elected{};
  };

  /// Starts listening. Errors: invalid_argument (invalid terms or certificates, no join token, a port in use), missing
  /// (certificate files).
  explicit controller(controller_options options);
  /// Starts listening, and calls \p reports on a thread of the controller. They must neither block nor throw.
  controller(controller_options options, hooks reports);
  ~controller();

  /// Returns "HOST:PORT", the value of control.address for its processes.
  [[nodiscard]] std::string address() const;
  /// Reports that the process called \p name has ended. Its parent calls this, because it may notice the end before the
  /// connection does.
  void process_ended(std::string name, std::int64_t pid, std::string how);
  /// Tells all processes to finish their work and leave. A controller that stands by ends, and the world goes on.
  void stop();
  /// Lets the process of \p place leave as planned, for maintenance: a process that stands by takes its place, or the
  /// world goes on with fewer ranks. No request of other processes is refused (docs/processes.md). The
  /// future is ready when the process is no rank any more; its world then stops. Errors: invalid_argument (no such
  /// rank, too few would remain, or, without \p renumbers, ranks behind it would get other numbers), rebuilding (the
  /// world does not serve now), stopping (the controller has ended before, or stands by).
  [[nodiscard]] std::future<void> leave(int place, bool renumbers = false);
  /// Makes any planned change of the ranks. The future has the processes of the world afterwards. Errors: rank_change.
  [[nodiscard]] std::future<world_processes> change(rank_change asked);
  /// Waits until the last process has left or the world has failed, for at most \p at_most. Returns whether that has
  /// happened.
  [[nodiscard]] bool wait(nanoseconds at_most);
  /// Returns why the world ended; errc::none if all processes finished their work.
  [[nodiscard]] error reason() const;

private:
  struct term;
  struct parts;
  std::unique_ptr<parts> parts_;
};

} // namespace troupe
