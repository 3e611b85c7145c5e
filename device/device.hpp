/// Represents one opened GPU (or simulated GPU of the mock) for all code above the driver.
#pragma once

#include <troupe/device/driver.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

/// An opened device. Its streams, events and buffers share ownership of it.
/// Threads: all functions may be called from any thread.
class device {
public:
  /// Opens device \p id of \p api. Errors: missing, device_occupied, too_old.
  [[nodiscard]] static std::shared_ptr<device> open(std::shared_ptr<driver> api, device_id id);

  /// Wraps device \p id of \p api without opening it.
  device(std::shared_ptr<driver> api, device_id id);

  /// Returns the driver of the device.
  [[nodiscard]] driver& api() const noexcept { return *api_; }
  /// Returns shared ownership of the driver.
  [[nodiscard]] const std::shared_ptr<driver>& shared_api() const noexcept { return api_; }
  /// Returns the ordinal of the device in this process.
  [[nodiscard]] device_id id() const noexcept { return id_; }

  /// Returns the current epoch of the device. Buffers allocated in an earlier epoch are stale (BUF-2).
  [[nodiscard]] device_epoch current_epoch() const noexcept;
  /// Declares all memory on the device lost. Every buffer allocated so far becomes stale.
  void declare_memory_lost() noexcept;

  /// Returns whether work on this device can read and write the memory of \p other. The driver is queried once per
  /// device and the answer is cached.
  [[nodiscard]] bool reaches(device_id other) const;

private:
  std::shared_ptr<driver> api_;
  device_id id_;
  std::atomic<std::uint32_t> epoch_{1};
  mutable std::mutex peers_guard_;
  mutable std::vector<std::pair<device_id, bool>> peers_; ///< The answers so far.
};

} // namespace troupe
