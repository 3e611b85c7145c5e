/// Reads everything that a runtime counts, as plain values, and nothing once the runtime has ended.
#pragma once

#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/pipeline/pipeline_progress.hpp>
#include <troupe/collectives/recording/request_tally.hpp>
#include <troupe/completion/admission/credit.hpp>
#include <troupe/completion/poller/poller.hpp>
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

/// One rank of this process.
struct rank_reading {
  rank origin; ///< Its rank in the world's first epoch. It does not change when ranks are renumbered.
  tally_reading tally;
  std::optional<pipeline_progress::counts> progress{}; ///< In the current epoch, if there is one.
};

/// The counts of one world.
struct world_reading {
  std::uint64_t number = 0; ///< Unique in the process.
  world_event status;
  std::chrono::system_clock::time_point formed{};
  history_reading history;
  pending_amount pending;
  std::size_t pending_limit = 0; ///< In requests. 0: no limit.
  std::vector<rank_reading> ranks;
};

/// The counts of a runtime.
struct runtime_reading {
  std::string version; ///< The version of troupe.
  std::string backend; ///< With its version.
  std::string driver;
  std::string profile; ///< The one in use.
  std::chrono::system_clock::time_point started{};
  poller_load poller{};
  std::vector<world_reading> worlds;
};

/// Threads: any.
class metrics_source {
public:
  explicit metrics_source(std::function<runtime_reading()> look) : look_{std::move(look)} {}

  /// Returns the current reading, or nothing once closed.
  [[nodiscard]] std::optional<runtime_reading> read() const {
    const std::lock_guard lock{guard_};
    return look_ ? std::optional{look_()} : std::nullopt;
  }
  /// Closes the source. Waits for a read in progress; no read begins afterwards.
  void close() {
    const std::lock_guard lock{guard_};
    look_ = nullptr;
  }

private:
  mutable std::mutex guard_;
  std::function<runtime_reading()> look_;
};

} // namespace troupe
