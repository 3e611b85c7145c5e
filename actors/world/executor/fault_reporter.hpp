/// Reports the faults of a world: the state of its ranks at the first failure of each epoch, and which ranks are to
/// blame.
#pragma once

#include <troupe/actors/world/executor/executor_context.hpp>
#include <troupe/collectives/pipeline/fault_report.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace troupe {

/// The fault reports of one world. Threads: one at a time, as the executor.
class fault_reporter {
public:
  /// \p world: the number of this world within the process (world_stamp).
  fault_reporter(const executor_context& of, std::uint64_t world) : of_{of}, world_{world} {}

  /// Takes a report at the first failure of an epoch, before the pipelines are marked as failed. Returns \p why with
  /// the suspects (fault_of()). \p is_verdict: see fault_report.
  error take(epoch of, error why, bool is_verdict = false);
  /// Returns a report of a request whose deadline has passed with \p why. This alone is not a fault.
  [[nodiscard]] std::shared_ptr<const fault_report> late(const error& why) const;
  /// Returns the report that was taken last, for the next event that has a reason; null for all later ones.
  [[nodiscard]] std::shared_ptr<const fault_report> detach() noexcept { return std::exchange(latest_, nullptr); }
  /// Returns the ranks that recovery_policy::shrink excludes after \p why.
  [[nodiscard]] std::vector<rank> blamed_for(const error& why) const;

private:
  const executor_context of_;
  const std::uint64_t world_;
  std::shared_ptr<const fault_report> latest_; ///< Null once it is detached.
  epoch reported_{0};                          ///< The latest epoch for which a report was taken.
};

} // namespace troupe
