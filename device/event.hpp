/// Events: points in a stream that other streams and threads can wait for.
#pragma once

#include <troupe/device/device.hpp>
#include <troupe/device/stream.hpp>

#include <memory>

namespace troupe {

/// Owns an event without timing. An event that was never recorded counts as reached.
/// An event promises order, never success. Use results only after the request's reply.
class event {
public:
  /// Creates an event on \p where, not recorded.
  explicit event(std::shared_ptr<device> where);
  event(event&& other) noexcept;
  event& operator=(event&& other) noexcept;
  ~event();

  /// Records the event behind the work currently in \p stream, which must be on this event's device.
  void record(stream_ref stream);
  /// Returns whether the work before the event has finished. Never blocks. Errors: those of the device.
  [[nodiscard]] bool reached() const;
  /// Returns the driver's handle. Cast it to a `cudaEvent_t`.
  [[nodiscard]] native_event native() const noexcept { return native_; }
  /// Returns the device of the event.
  [[nodiscard]] const device& where() const noexcept { return *device_; }

private:
  std::shared_ptr<device> device_;
  native_event native_ = nullptr;
};

/// An event as requests carry it. The request holds it until its outcome.
using shared_event = std::shared_ptr<const event>;

/// Records a new event behind the work currently in \p stream.
[[nodiscard]] shared_event record_event(const std::shared_ptr<device>& where, stream_ref stream);

} // namespace troupe
