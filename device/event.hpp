/// A point in a stream that others can wait for.
#pragma once

#include <troupe/device/device.hpp>
#include <troupe/device/stream.hpp>

#include <memory>

namespace troupe {

/// Owns an untimed event. An event never recorded counts as reached.
/// An event promises order, never success: results are used after the request's reply.
class event {
public:
  /// A new event on \p where, not recorded.
  explicit event(std::shared_ptr<device> where);
  event(event&& other) noexcept;
  event& operator=(event&& other) noexcept;
  ~event();

  /// Records behind the work now in \p stream, which is on this event's device.
  void record(stream_ref stream);
  /// Whether the work before it has finished. Never blocks. Errors: the device's.
  [[nodiscard]] bool reached() const;
  /// The driver's own: a `cudaEvent_t` by casting.
  [[nodiscard]] native_event native() const noexcept { return native_; }
  /// The device it was made on.
  [[nodiscard]] const device& where() const noexcept { return *device_; }

private:
  std::shared_ptr<device> device_;
  native_event native_ = nullptr;
};

/// An event as requests carry it: held until the request's outcome.
using shared_event = std::shared_ptr<const event>;

/// Records a new event behind the work now in \p stream.
[[nodiscard]] shared_event record_event(const std::shared_ptr<device>& where, stream_ref stream);

} // namespace troupe
