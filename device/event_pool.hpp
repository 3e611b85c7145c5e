/// A pool of events, which avoids a driver call for each new event.
#pragma once

#include <troupe/device/stream.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// Caches events of one device. An event returned by record() goes back to the pool when its last holder releases it.
/// If the pool no longer exists by then, the event is destroyed.
/// Threads: all functions may be called from any thread.
class event_pool : public std::enable_shared_from_this<event_pool> {
public:
  /// Keeps at most \p kept idle events.
  explicit event_pool(std::shared_ptr<device> where, std::size_t kept = 64);

  /// Returns an event recorded behind the work currently in \p stream, which must be on the pool's device. Streams that
  /// already wait for an earlier record of the same event are not affected.
  [[nodiscard]] shared_event record(stream_ref stream);
  /// Returns the number of events in the pool.
  [[nodiscard]] std::size_t idle_count() const;

private:
  [[nodiscard]] std::unique_ptr<event> take();
  void put_back(std::unique_ptr<event> one) noexcept;

  std::shared_ptr<device> device_;
  std::size_t kept_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<event>> idle_; ///< Reserved to its full capacity.
};

} // namespace troupe
