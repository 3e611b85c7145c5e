/// The rings in shared memory through which one process of this host sends its requests.
#pragma once

#include <troupe/completion/completion_settings.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>
#include <troupe/processes/transport/shared_memory/ring_endpoint.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// A process's connection to the gate of its host, and the rings of the present epoch. Whatever fails is warned of, and
/// requests then go through the control connection.
/// Threads: one call at a time.
class epoch_rings {
public:
  using retired = std::vector<std::shared_ptr<ring_endpoint>>;

  /// The functions may be empty. \p knock returns a new connection to the gate, if there is one.
  epoch_rings(std::function<std::optional<gate_connection>()> knock, wait_profile wait,
              std::function<void(const error& why)> warned)
    : knock_{std::move(knock)}, wait_{wait}, warned_{std::move(warned)} {}

  /// Connects to the gate anew. Returns the nonce by which the controller knows the connection; nullopt if there is no
  /// gate.
  std::optional<ring_session> knock();
  /// Returns the nonce of the present connection to the gate, if there is one.
  [[nodiscard]] std::optional<ring_session> nonce() const { return gate_ ? std::optional{gate_->nonce} : std::nullopt; }
  /// Returns whether the gate holds the other end of the connection.
  [[nodiscard]] bool has_gate() const;
  void leave_gate() { gate_.reset(); }

  /// Accepts the rings of an epoch that the gate has sent. If it fails, none are offered again before knock().
  void accept(epoch of, rank self);
  /// Begins to receive from the rings that have been accepted, and returns how to send; empty if there are none.
  [[nodiscard]] std::function<void(std::string)> open(ring_listener to);
  /// Returns whether requests go through rings.
  [[nodiscard]] bool is_open() const noexcept { return open_ != nullptr; }
  /// Drops the rings of the present epoch, without waiting for their thread.
  void retire();
  /// Returns the rings that have been dropped, whose threads their destruction joins. Destroy them without a lock that
  /// their listener takes.
  [[nodiscard]] retired take_retired() { return std::exchange(retired_, {}); }
  /// Drops everything, and uses no rings any more.
  void close();

private:
  void warn(const exception& failure) const;

  const std::function<std::optional<gate_connection>()> knock_;
  const wait_profile wait_;
  const std::function<void(const error& why)> warned_;
  bool is_closed_ = false;
  std::optional<gate_connection> gate_{};
  std::optional<ring_connection> accepted_{};
  std::shared_ptr<ring_endpoint> open_{};
  retired retired_{};
};

} // namespace troupe
