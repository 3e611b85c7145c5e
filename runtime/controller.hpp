/// The controller of a world that spans processes: in the program that starts them, or with rank 0.
#pragma once

#include <troupe/actors/control/controller_state.hpp>
#include <troupe/actors/transport/guard_credentials.hpp>
#include <troupe/collectives/order/sequencer.hpp>
#include <troupe/completion/poller/clock.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

/// What a controller is made with.
struct controller_options {
  controller_terms terms;
  sequencer_limits sequencing{}; ///< Of ordering::agreed.
  /// To be found at: by the processes of this machine, or, with certificates, by those of others, too.
  std::string host = "127.0.0.1";
  std::uint16_t port = 0; ///< 0: any.
  /// Where its processes and it show each other certificates: those of the controller. Without them a guard asks for
  /// the token alone. (docs/security.md)
  std::optional<guard_credentials> certificates{};
};

/// Says who is in the world, forms its epochs, notices whom it has lost, and keeps the order of its requests.
/// Lifetime: its end leaves the processes without a controller; stop() first lets them finish. Threads: safe from any.
class controller {
public:
  /// What its owner is told, and can do for it.
  struct hooks {
    std::function<void(const control_event&)> heard{};
    /// Makes sure that a process is dead, if it can.
    std::function<void(const process_identity&)> kill{};
    /// A process has joined.
    std::function<void(const process_identity&)> joined{};
    /// The world rebuilds, and no process is there for this place. At most once for each rebuild.
    std::function<void(int place)> wanted{};
  };

  /// Errors: invalid_argument (terms, no join token, a port in use, certificates), missing (their files).
  explicit controller(controller_options options);
  /// \p reports are called on a thread of the controller's: they must neither block nor throw.
  controller(controller_options options, hooks reports);
  ~controller();

  /// "HOST:PORT", for control.address of its processes.
  [[nodiscard]] std::string address() const;
  /// Whoever started the process called \p name has seen it end: sooner than its connection may tell.
  void process_ended(std::string name, std::int64_t pid, std::string how);
  /// Tells all processes to finish what they do and leave.
  void stop();
  /// Waits until the last process has left, or the world has failed, at most \p at_most. Returns whether it has.
  [[nodiscard]] bool wait(nanoseconds at_most);
  /// Of a world that has ended: why; errc::none where all its processes have done their work.
  [[nodiscard]] error reason() const;

private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

} // namespace troupe
