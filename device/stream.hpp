/// A queue of work on one device.
#pragma once

#include <troupe/device/device.hpp>

#include <cstddef>
#include <memory>

namespace troupe {

class event;

/// Names a stream without owning it: one of troupe's or one of a user's (adopt a `cudaStream_t` by casting).
class stream_ref {
public:
  /// Names \p native, a stream of \p where.
  stream_ref(device& where, native_stream native) noexcept : device_{&where}, native_{native} {}

  /// The device that it is a queue of.
  [[nodiscard]] device& where() const noexcept { return *device_; }
  /// The driver's own: a `cudaStream_t` by casting.
  [[nodiscard]] native_stream native() const noexcept { return native_; }

  /// Copies in stream order between any two of device, pinned and pageable memory.
  void copy(void* to, const void* from, std::size_t size_bytes) const;
  /// Sets every byte to \p value in stream order.
  void fill(void* to, std::uint8_t value, std::size_t size_bytes) const;
  /// Calls \p function on a thread of the driver, in stream order. It must not call the driver.
  void call(driver::host_function function, void* argument) const;
  /// Later work waits, on the device, until \p awaited is reached.
  void wait(const event& awaited) const;
  /// Whether all work has finished. Throws the device's error if there is one.
  [[nodiscard]] bool idle() const;
  /// Blocks the calling thread until all work has finished. Not for actors (BLK-1).
  void synchronize() const;

private:
  device* device_;
  native_stream native_;
};

/// Owns a stream. Work still in it when it is destroyed runs on.
class stream {
public:
  /// A new stream on \p where. Errors: the driver's.
  explicit stream(std::shared_ptr<device> where);
  stream(stream&& other) noexcept;
  stream& operator=(stream&& other) noexcept;
  ~stream();

  /// The same stream, not owned.
  [[nodiscard]] stream_ref ref() const noexcept { return {*device_, native_}; }
  // NOLINTNEXTLINE(google-explicit-constructor): an owner passes as its view
  operator stream_ref() const noexcept { return ref(); }

private:
  std::shared_ptr<device> device_;
  native_stream native_ = nullptr;
};

} // namespace troupe
