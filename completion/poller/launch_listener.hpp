/// Interface for notifications that a request has been enqueued on its device.
#pragma once

#include <troupe/device/event.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>

namespace troupe {

/// One rank's part of a request in its stream.
struct launch_mark {
  troupe::rank rank{};
  troupe::ticket ticket{};
  troupe::epoch epoch{};
  shared_event behind{};    ///< Recorded directly behind it and behind all that was launched together with it.
  std::uint64_t launch = 0; ///< The same number as completion::launch.
};

/// Threads: called on the launcher's thread, so it must not wait.
class launch_listener {
public:
  launch_listener() = default;
  launch_listener(const launch_listener&) = delete;
  launch_listener& operator=(const launch_listener&) = delete;
  virtual ~launch_listener() = default;

  /// Called before the outcome of the part can be delivered.
  virtual void enqueued(const launch_mark& mark) noexcept = 0;
};

} // namespace troupe
