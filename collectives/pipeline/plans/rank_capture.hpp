/// The argument of a client's capture function: one rank's access to the capture of a plan.
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

/// One rank's part in a capture. The client's kernels go into stream(), with the device current and the stream in
/// capture. Requests are added among them by launch(). The captured work runs in the order of the calls. Other streams
/// join by events, as in any capture.
///
/// Lifetime: the call of the function. Threads: the calling one.
class rank_capture {
public:
  /// For the code that calls the capture function.
  rank_capture(rank_pipeline& one, stream_ref into, capture_match& meeting);

  /// The rank that is captured.
  [[nodiscard]] rank self() const noexcept;
  /// Number of ranks of the world, in the epoch of this capture.
  [[nodiscard]] int world_size() const noexcept;
  /// The rank's device, which is current on the calling thread.
  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept;
  /// The stream in capture: troupe's, or the client's own of plan_options.
  [[nodiscard]] stream_ref stream() const noexcept { return into_; }

  /// Captures a request. It must not use host memory (except copies of pinned memory), wait for an event, or be a
  /// replay. Waits, on the CPU, until the peers have asked for theirs, so that a mismatch is found before anything is
  /// enqueued. Errors: those of a request, at once; deadline_exceeded; the error that failed the capture on another
  /// rank; invalid_argument (it cannot be captured).
  void launch(operation what);
  /// Captures several requests in one launch. All ranks give the same ones (troupe::group has the rules). Parts may be
  /// groups. Errors: as launch(); invalid_argument (parts that overlap in memory with a writer among them, a copy, a
  /// barrier).
  void launch_together(std::vector<operation> parts);

  /// Holds memory that the client's own kernels use as long as the plan. The plan is refused when the memory is stale.
  void keep(buffer memory) { content_.kept.push_back(std::move(memory)); }

  /// For the session: what was captured so far.
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
