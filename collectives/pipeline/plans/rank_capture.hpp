/// What a client's function is given, once for each rank, while its plan is captured.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/pipeline/plans/captured_plan.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>

#include <memory>
#include <span>
#include <vector>

namespace troupe {

class capture_match;

/// One rank's side of a capture. The client's kernels go into stream(), with the device current and the stream in
/// capture, and its requests among them by launch(): what is captured runs in the order of the calls. Other streams
/// join by events, as in any capture.
///
/// Lifetime: of the function's call. Threads: the one that it is given to.
class rank_capture {
public:
  /// For whoever calls the capture function.
  rank_capture(rank_pipeline& one, stream_ref into, capture_match& meeting);

  /// The rank that is captured.
  [[nodiscard]] rank self() const noexcept;
  /// Ranks of the world, in the epoch of this capture.
  [[nodiscard]] int world_size() const noexcept;
  /// The rank's device, which is current on the calling thread.
  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept;
  /// That which is in capture: troupe's, or the client's own of plan_options.
  [[nodiscard]] stream_ref stream() const noexcept { return into_; }

  /// Captures a request: any that is not on host memory (but copies of pinned memory can be), waits for no event, and
  /// is no replay. Waits, on the CPU, until its peers have asked for theirs, so that a mismatch is found before
  /// anything is enqueued. Errors: those of a request, at once, deadline_exceeded, and whatever made the capture fail
  /// on another rank; invalid_argument where it cannot be captured.
  void launch(operation what);
  /// The same for several, side by side in one launch; all ranks give the same (troupe::group has the rules). Parts may
  /// be groups. Errors: invalid_argument (parts that overlap in memory with a writer among them, a copy, a barrier).
  void launch_together(std::vector<operation> parts);

  /// Memory that the client's own kernels use: held as long as the plan, and the plan is refused when it is stale.
  void keep(buffer memory) { content_.kept.push_back(std::move(memory)); }

  /// For the session: what has been captured so far.
  [[nodiscard]] captured_plan::content& content() noexcept { return content_; }

private:
  void check(const operation& what) const;
  void check_side_by_side(std::span<const operation> parts) const;
  void enqueue(std::span<const operation> parts);

  rank_pipeline& pipeline_;
  stream_ref into_;
  capture_match& meeting_;
  captured_plan::content content_;
};

} // namespace troupe
