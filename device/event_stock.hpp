/// Events that are used again: making one costs a call to the driver.
#pragma once

#include <troupe/device/event.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// Of one device. What record() gives comes back by itself when its last holder lets it go, which may be after the
/// stock has ended: it is destroyed then.
/// Threads: safe from any.
class event_stock : public std::enable_shared_from_this<event_stock> {
public:
  /// Keeps \p kept events at rest, at most.
  explicit event_stock(std::shared_ptr<device> where, std::size_t kept = 64);

  /// An event behind the work now in \p stream, which is on the stock's device. Streams that were told to wait for an
  /// earlier record of the same event are not concerned.
  [[nodiscard]] shared_event record(stream_ref stream);
  [[nodiscard]] std::size_t at_rest() const;

private:
  [[nodiscard]] std::unique_ptr<event> take();
  void put_back(std::unique_ptr<event> one) noexcept;

  std::shared_ptr<device> device_;
  std::size_t kept_;
  mutable std::mutex guard_;
  std::vector<std::unique_ptr<event>> resting_; ///< Room for all is reserved.
};

} // namespace troupe
