/// Events: points in a stream that other streams and threads can wait for, and a pool of them, which avoids a driver
/// call for each new event.
#pragma once

#include <troupe/device/device.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

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

/// Caches events of one device. An event returned by record() goes back to the cache when its last holder releases it.
/// If the cache no longer exists by then, the event is destroyed.
/// Threads: all functions may be called from any thread.
class event_pool : public std::enable_shared_from_this<event_pool> {
public:
  /// Keeps at most \p kept idle events.
  explicit event_pool(std::shared_ptr<device> where, std::size_t kept = 64);

  /// Returns an event recorded behind the work currently in \p stream, which must be on the cache's device. Streams
  /// that already wait for an earlier record of the same event are not affected.
  [[nodiscard]] shared_event record(stream_ref stream);
  /// Returns the number of events in the cache.
  [[nodiscard]] std::size_t idle_count() const;

private:
  [[nodiscard]] std::unique_ptr<event> take();
  void put_back(std::unique_ptr<event> one) noexcept;

  std::shared_ptr<device> device_;
  std::size_t kept_;
  mutable std::mutex guard_;
  std::vector<std::unique_ptr<event>> idle_; ///< Reserved to its full capacity.
};

} // namespace troupe
