/// Runs the order service of a host on which the controller of a world does not run.
#pragma once

#include <troupe/completion/completion_settings.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>
#include <troupe/runtime/configuration/configuration.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

/// Serves the processes of this host that join the controller after its construction: they send their requests through
/// shared memory, and this object decides the order of worlds that lie within this host
/// (docs/design/0077-order-per-host.md). Without it, and in epochs in which it does not serve, the controller decides.
///
/// Lifetime: if it is destroyed while it serves an epoch, the epoch fails. Threads: safe from any.
class order_host {
public:
  /// Connects to the controller at settings.address, with \p token. \p wait: how the thread that decides waits. \p
  /// limits are those of the order of worlds within this host. \p serving is called with the number of ranks that are
  /// served in an epoch; it must not block.
  /// Errors: invalid_argument (the address; certificates or token missing), missing (certificate files), unsupported
  /// (this host has the controller or such a service already, or no Unix sockets).
  order_host(
      const control_settings& settings, std::string token, const wait_profile& wait, const sequencer_limits& limits,
      std::function<void(epoch of, std::size_t ranks)> serving = [](epoch, std::size_t) {});
  ~order_host();

  /// Waits until the service has ended, for at most \p at_most. Returns why it has: errc::stopping after the end of the
  /// world; else the controller has refused it, or has not been reached for settings.patience.
  [[nodiscard]] std::optional<error> wait(nanoseconds at_most);

private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

} // namespace troupe
