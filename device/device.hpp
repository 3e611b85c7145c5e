/// One GPU, or a pretend one, as everything above the driver sees it.
#pragma once

#include <troupe/device/driver.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

namespace troupe {

/// A device that has been opened. Shared by all that lives on it: streams, events, buffers.
/// Threads: safe from any.
class device {
public:
  /// Opens device \p id of \p api. Errors: missing, device_occupied, too_old.
  [[nodiscard]] static std::shared_ptr<device> open(std::shared_ptr<driver> api, device_id id);

  /// The device \p id of \p api.
  device(std::shared_ptr<driver> api, device_id id);

  /// The driver that works on it.
  [[nodiscard]] driver& api() const noexcept { return *api_; }
  /// The same, to be held.
  [[nodiscard]] const std::shared_ptr<driver>& shared_api() const noexcept { return api_; }
  /// Its ordinal in this process.
  [[nodiscard]] device_id id() const noexcept { return id_; }

  /// The device's present life. Buffers of an earlier one are stale (BUF-2).
  [[nodiscard]] device_epoch current_epoch() const noexcept;
  /// Declares all memory on the device lost: every buffer made so far becomes stale.
  void declare_memory_lost() noexcept;

  /// Whether work on this device can read and write the memory of \p other. The driver is asked once for each.
  [[nodiscard]] bool reaches(device_id other) const;

private:
  std::shared_ptr<driver> api_;
  device_id id_;
  std::atomic<std::uint32_t> epoch_{1};
  mutable std::mutex peers_guard_;
  mutable std::map<device_id, bool> peers_;
};

} // namespace troupe
