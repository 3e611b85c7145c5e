/// Reads all counts of a runtime as plain values, and returns nothing once the runtime has ended.
#pragma once

#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/progress/progress_record.hpp>
#include <troupe/collectives/recording/request_tally.hpp>
#include <troupe/completion/admission/credit.hpp>
#include <troupe/completion/poller/poller.hpp>
#include <troupe/device/driver.hpp>
#include <troupe/runtime/metrics/world_history.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// The counts of one rank of this process.
struct rank_reading {
  rank origin; ///< Its rank in the world's first epoch. It does not change when ranks are renumbered.
  tally_reading tally;
  std::optional<pipeline_progress::counts> progress{}; ///< Its progress in the current epoch, if there is one.
};

/// The counts of one world.
struct world_reading {
  std::uint64_t number = 0; ///< The world's number, unique in the process.
  world_event status;
  std::chrono::system_clock::time_point formed{};
  history_reading history;
  pending_amount pending;
  std::size_t pending_limit = 0; ///< Maximum number of pending requests; 0: no limit.
  std::vector<rank_reading> ranks;
};

/// The memory of one device that this process's pool has.
struct pool_reading {
  device_id where{};
  pool_usage now{};
};

/// The counts of a runtime.
struct runtime_reading {
  std::string version; ///< The version of troupe.
  std::string backend; ///< Name and version of the backend.
  std::string driver;
  std::string profile; ///< The latency profile in use.
  std::chrono::system_clock::time_point started{};
  poller_load poller{};
  std::vector<world_reading> worlds;
  std::vector<pool_reading> pools{}; ///< Of the devices whose driver answers, ascending.
};

/// Gives access to a runtime's counts until it is closed. Threads: any.
class metrics_source {
public:
  explicit metrics_source(std::function<runtime_reading()> sample) : sample_{std::move(sample)} {}

  /// Returns the current reading, or nothing once closed.
  [[nodiscard]] std::optional<runtime_reading> read() const {
    const std::lock_guard lock{mutex_};
    return sample_ ? std::optional{sample_()} : std::nullopt;
  }
  /// Closes the source. Waits for a read in progress; no read begins afterwards.
  void close() {
    std::function<runtime_reading()> closed; // destroyed without the lock
    const std::lock_guard lock{mutex_};
    closed.swap(sample_);
  }

private:
  mutable std::mutex mutex_;
  std::function<runtime_reading()> sample_;
};

} // namespace troupe
