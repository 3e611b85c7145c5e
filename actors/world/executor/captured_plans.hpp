/// Owns the plans that a world's clients have captured, and captures them again in each epoch.
#pragma once

#include <troupe/actors/caf/requests.hpp>
#include <troupe/actors/world/executor/executor_context.hpp>
#include <troupe/actors/world/executor/restored_parts.hpp>
#include <troupe/actors/world/request_gate.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/time.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace troupe {

class capture_session;

/// The plans of one world in this process. Each capture has a place in the order, and runs on the launchers; a helper
/// waits for its end. Threads: one at a time, as the executor.
class captured_plans {
public:
  /// \p world: the number of this world within the process (world_stamp). \p gate: validates the steps of plans.
  captured_plans(const executor_context& of, std::uint64_t world, const request_gate& gate, restored_parts& restored)
    : of_{of}, world_{world}, gate_{gate}, restored_{restored} {}

  void perform(capture_request asked, const std::shared_ptr<capture_answer>& reply);
  /// Captures the local rank's part of a plan for which another process has asked.
  void perform(peer_capture asked);
  /// Captures all plans for the present epoch, which has just formed. Call it before any other request of the epoch, so
  /// that every replay comes behind its plan's capture. A failure is reported by later replays.
  void capture_again();
  /// Returns the plans that have names.
  [[nodiscard]] const std::shared_ptr<plan_directory>& directory() const noexcept { return directory_; }

private:
  using capture_end = std::function<void(const error&, nanoseconds took)>;

  /// \p is_lasting: it is captured again in later epochs. Plans of other processes end with their epoch.
  void capture(capture_request asked, const std::shared_ptr<capture_answer>& reply, bool is_lasting);
  [[nodiscard]] error objection_to(const capture_request& asked) const;
  [[nodiscard]] nanoseconds patience_of(const captured_plan& plan) const;
  /// Captures \p plan for the present epoch. \p tell is called on another thread with errc::none or the failure, and
  /// with the duration. Ranks of other processes must ask for the same capture within \p wait_for_peers.
  void capture_now(const std::shared_ptr<captured_plan>& plan, nanoseconds wait_for_peers, capture_end tell);
  /// Returns a function that waits for a session's end, at most \p limit, and calls \p tell.
  [[nodiscard]] std::function<void(const std::shared_ptr<capture_session>&)> watch_for(nanoseconds limit,
                                                                                       capture_end tell) const;
  /// Drops \p plan, which has streams of ranks that have left. Returns the error for its replays.
  error drop(captured_plan& plan) const;

  const executor_context of_;
  const std::uint64_t world_;
  const request_gate& gate_;
  restored_parts& restored_;
  const std::shared_ptr<plan_directory> directory_ = std::make_shared<plan_directory>();
  std::vector<std::weak_ptr<captured_plan>> captured_; ///< Plans to capture again in the next epoch.
  std::uint64_t unnamed_count_ = 0;                    ///< In a world over processes.
};

} // namespace troupe
