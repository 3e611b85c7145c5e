/// A request that a pipeline has accepted.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/collectives/pipeline/staging/host_staging.hpp>
#include <troupe/collectives/progress/progress_record.hpp>
#include <troupe/collectives/progress/told_commits.hpp>
#include <troupe/collectives/recording/flight_recorder.hpp>
#include <troupe/completion/poller/track.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

/// Holds descriptors, buffers and events until the outcome (BUF-1). Any thread may create it, before its position in
/// the order of launches is known. A sole owner may also fail() it.
class pipeline_call final : public in_flight, public pipeline_job {
public:
  pipeline_call(ticket name, epoch formed_in, time_point deadline, reply_promise&& reply, operation&& what,
                request_origin from, progress_record& progress, const communicator& peers);

  [[nodiscard]] const operation& what() const noexcept { return what_; }
  /// Takes the operation, as take_reply() takes the reply.
  [[nodiscard]] operation take_operation() noexcept { return std::move(what_); }
  [[nodiscard]] call_site site() const noexcept { return site_; }
  /// Returns the events that its launch waits for on the device.
  [[nodiscard]] const std::vector<const event*>& ready() const noexcept { return ready_; }
  [[nodiscard]] bool is_staged() const noexcept { return is_staged_; }
  /// Precondition: is_staged(). Resources that staging needs until the outcome.
  [[nodiscard]] staging_hold& staged() noexcept { return *staged_; }
  /// Returns whether it takes so little GPU time that its completion may be reported a few launches late.
  [[nodiscard]] bool is_short() const noexcept { return is_short_; }
  /// Makes it the \p number-th request, from 1, that is released to its rank (CUT-1). Call before it is submitted.
  void released_as(std::uint64_t number) noexcept { release_ = number; }
  /// Answers an agree with \p value, which is decided at its place in the order. Call it after released_as(), in the
  /// order of release, in place of rank_pipeline::submit(). Returns false, after an answer with an unknown outcome, if
  /// the process has already reported what it knows of the epoch (commit_record::seal()).
  bool agreed_on(std::shared_ptr<const agreed_value> value, time_point now) noexcept;
  /// Notes that all participants have asked for it. Call before it is submitted.
  void all_have_asked() noexcept { all_have_asked_ = true; }
  /// Returns whether it ends soon after the launches before it, independent of clients. These launches may then share
  /// its completion mark.
  [[nodiscard]] bool continues(const launcher_tail& left) const noexcept override;
  [[nodiscard]] const operation_sketch& sketch() const noexcept { return sketch_; }
  [[nodiscard]] const request_origin& from() const noexcept { return from_; }

  /// Records once in the flight recorder, if any, that the request was accepted. The client's thread may omit the call:
  /// the poller makes it when it takes the request.
  void note_asked() noexcept;
  /// Sets the place in the client's source, for the flight recorder. Call before it is shared.
  void asked_at(call_site site) noexcept { site_ = site; }
  /// Sets the time at which its place in the order was decided, for the flight recorder. Call before it is submitted.
  void note_matched(time_point when) noexcept { matched_ = when; }
  /// Records in the flight recorder, if any, that it was enqueued in its stream, as one of \p fused requests.
  void note_launched(launch_place at, std::size_t fused, time_point when) const noexcept;

  /// Sets its position, which may be decided after its creation. Call before it is shared.
  void stands_at(request_origin from) noexcept {
    from_ = from;
    sketch_ = operation_sketch{what_, from};
  }
  /// Sets the listener that is notified of its launch. Call before it is shared.
  void tell(std::shared_ptr<launch_listener> who) noexcept { listener_ = std::move(who); }
  /// Returns the listener; null for most requests.
  [[nodiscard]] launch_listener* listener() const noexcept { return listener_.get(); }
  /// Also waits for the events of \p other, which is launched with it and leaves the track later. Call before it is
  /// shared.
  void wait_also_for(const pipeline_call& other);

  [[nodiscard]] bool inputs_ready() const override;
  void taken() noexcept override { note_asked(); }
  void started(time_point now) noexcept override;
  void succeeded(const completion& result) noexcept override;
  void skipped() noexcept override { count(); }
  void failed(errc code) noexcept override;
  [[nodiscard]] std::shared_ptr<const undefined_buffers> undefined() const noexcept override;
  void refuse_launch(const error& why) noexcept override { refuse(why); }

private:
  void launch(rank_pipeline& by) noexcept override;
  /// Counts it among those that have succeeded. Before its reply, so that no client knows more than the count.
  void count() noexcept {
    if (release_ > 0) progress_.successes.note(release_);
    if (const auto* one = std::get_if<barrier>(&what_); one != nullptr && one->commit && progress_.commits)
      progress_.commits->note(from_.of_world ? std::nullopt : std::optional{from_.lane}, *one->commit);
  }
  [[nodiscard]] flight_name in_flight_line() const noexcept { return {name(), from_.of_world, formed_in()}; }

  operation what_;
  std::vector<const event*> ready_;  ///< Owned by what_ and by the requests that are launched with it.
  std::shared_ptr<const void> plan_; ///< For a replay: keeps the memory that its graphs use.
  bool is_staged_;
  bool is_short_ = false;
  bool all_have_asked_ = false;
  std::uint64_t release_ = 0;            ///< 0: not counted.
  std::unique_ptr<staging_hold> staged_; ///< Null for most requests, because it needs allocations.
  operation_sketch sketch_;
  std::shared_ptr<launch_listener> listener_;
  progress_record& progress_; ///< Kept alive by the track, the only caller of succeeded().
  request_origin from_;
  rank self_;
  int world_size_;
  device_id where_;
  std::size_t payload_bytes_;
  call_site site_{};
  std::atomic<bool> is_noted_{false};
  time_point matched_{};
  std::optional<time_point> started_{};
};

} // namespace troupe
