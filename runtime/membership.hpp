/// The interface through which a runtime takes part in a world over processes. Internal.
#pragma once

#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/actors/world/controller_channel.hpp>
#include <troupe/completion/poller/serving_lease.hpp>

#include <memory>
#include <string>

namespace troupe {

/// The membership of this process in its controller's world. Lifetime: create it before the world, and call begin()
/// when the world exists. It outlives the world and ends before the actor system. Threads: end() from any, the others
/// from one at a time.
class membership {
public:
  membership() = default;
  membership(const membership&) = delete;
  membership& operator=(const membership&) = delete;
  virtual ~membership() = default;

  /// Returns the world's way to the controller.
  [[nodiscard]] virtual std::shared_ptr<controller_channel> channel() const = 0;
  /// Returns the lease under which the process serves (MEM-1).
  [[nodiscard]] virtual std::shared_ptr<const serving_lease> lease() const = 0;
  /// Starts to connect to the controller, whose messages are forwarded to \p target.
  virtual void begin(world_inner_handle target) = 0;
  /// Returns whether the controller has admitted the process.
  [[nodiscard]] virtual bool is_joined() const = 0;
  /// Returns whether the process, when it was admitted, was to stand by until a place is free.
  [[nodiscard]] virtual bool is_spare() const = 0;
  /// Describes what a process whose world has not formed waits for: the controller, or other processes.
  [[nodiscard]] virtual std::string awaited() const = 0;
  /// Leaves the world. Idempotent.
  virtual void end() = 0;
};

} // namespace troupe
