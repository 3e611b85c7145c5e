/// Streams: queues of work on one device, events in them, and spare streams, which make it possible to create streams
/// while the device hangs.
#pragma once

#include <troupe/device/device.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

class event;
struct kernel_launch;

/// Refers to a stream without owning it. It may be a stream of troupe or of a user (cast from a `cudaStream_t`).
class stream_ref {
public:
  /// Refers to \p native, a stream of \p where.
  stream_ref(device& where, native_stream native) noexcept : device_{&where}, native_{native} {}

  /// Returns the device of the stream.
  [[nodiscard]] device& where() const noexcept { return *device_; }
  /// Returns the driver's handle. Cast it to a `cudaStream_t`.
  [[nodiscard]] native_stream native() const noexcept { return native_; }

  /// Copies in stream order between any two of device, pinned and pageable memory.
  void copy(void* to, const void* from, std::size_t size_bytes) const;
  /// Sets every byte to \p value in stream order.
  void fill(void* to, std::uint8_t value, std::size_t size_bytes) const;
  /// Calls \p function on a thread of the driver, in stream order. \p function must not call the driver.
  void call(driver::host_function function, void* argument) const;
  /// Enqueues a kernel. See driver::launch().
  void launch(const kernel_launch& one) const;
  /// Makes later work in the stream wait, on the device, until \p awaited is reached.
  void wait(const event& awaited) const;
  /// Returns whether all work has finished. Throws the device's error if there is one.
  [[nodiscard]] bool idle() const;
  /// Blocks the calling thread until all work has finished. Actors must not call it (BLK-1).
  void synchronize() const;

private:
  device* device_;
  native_stream native_;
};

/// Destroys a handle of a device's driver. A failure is reported as a leak.
struct handle_destroyer {
  std::shared_ptr<device> where;

  void operator()(native_stream one) const noexcept;
  void operator()(native_event one) const noexcept;
  void operator()(native_graph one) const noexcept;
};

/// Owns a stream. Work that is in the stream when it is destroyed still runs.
class stream {
public:
  /// Creates a stream on \p where. Errors: those of the driver.
  explicit stream(const std::shared_ptr<device>& where);

  /// Returns a reference that does not own the stream.
  [[nodiscard]] stream_ref ref() const noexcept { return {*native_.get_deleter().where, native_.get()}; }
  // NOLINTNEXTLINE(google-explicit-constructor): an owner passes as its view
  operator stream_ref() const noexcept { return ref(); }

private:
  std::unique_ptr<opaque_stream, handle_destroyer> native_;
};

/// Owns an event without timing. An event that was never recorded counts as reached.
/// An event promises order, never success. Use results only after the request's reply.
class event {
public:
  /// Creates an event on \p where, not recorded.
  explicit event(const std::shared_ptr<device>& where);

  /// Records the event behind the work currently in \p stream, which must be on this event's device.
  void record(stream_ref stream);
  /// Returns whether the work before the event has finished. Never blocks. Errors: those of the device.
  [[nodiscard]] bool reached() const;
  /// Returns the driver's handle. Cast it to a `cudaEvent_t`.
  [[nodiscard]] native_event native() const noexcept { return native_.get(); }
  /// Returns the device of the event.
  [[nodiscard]] const device& where() const noexcept { return *native_.get_deleter().where; }

private:
  std::unique_ptr<opaque_event, handle_destroyer> native_;
};

/// An event that a request waits for. The request holds it until its outcome.
using shared_event = std::shared_ptr<const event>;

/// Records a new event behind the work currently in \p stream.
[[nodiscard]] shared_event record_event(const std::shared_ptr<device>& where, stream_ref stream);

/// Reserves streams for a world that is formed while an operation hangs on the device. CUDA allocates the resources of
/// streams on the device in blocks of about forty. The thread that needs the next block waits until the device is idle:
/// with a hanging operation, it would wait indefinitely. Therefore a world creates spare streams ahead of time and
/// destroys them when it forms again; new streams then use their resources. (docs/design/0033-spare-streams.md)
///
/// Threads: all functions may be called from any thread.
class spare_streams {
public:
  /// Holds no streams yet.
  spare_streams(std::shared_ptr<device> where, std::size_t wanted) : device_{std::move(where)}, wanted_{wanted} {}
  spare_streams(const spare_streams&) = delete;
  spare_streams& operator=(const spare_streams&) = delete;

  /// Creates the missing streams. May wait for the device. Errors: those of the driver; streams created so far are
  /// kept.
  void fill();
  /// Destroys all spare streams. The same number of streams can then be created without waiting.
  void give_back();
  /// Returns the current number of spare streams.
  [[nodiscard]] std::size_t size() const;

private:
  std::shared_ptr<device> device_;
  std::size_t wanted_;
  mutable std::mutex mutex_;
  std::vector<stream> kept_;
};

} // namespace troupe
