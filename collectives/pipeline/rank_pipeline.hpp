/// One rank's way to its GPU and back: request in, launch on the launcher's thread, completion seen by the poller,
/// answer out. It owns the rank's stream and communicator for one epoch.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/operation/validation.hpp>
#include <troupe/collectives/operation/world_stamp.hpp>
#include <troupe/collectives/pipeline/launch_observer.hpp>
#include <troupe/collectives/pipeline/launcher.hpp>
#include <troupe/collectives/pipeline/pipeline_progress.hpp>
#include <troupe/collectives/pipeline/plans/rank_graphs.hpp>
#include <troupe/collectives/pipeline/staging/host_staging.hpp>
#include <troupe/collectives/recording/flight_recorder.hpp>
#include <troupe/completion/poller/poller.hpp>
#include <troupe/completion/poller/track.hpp>
#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/completion/sources/recycling.hpp>
#include <troupe/device/event_stock.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

class pipeline_call;
class pipeline_job;
using pipeline_calls = std::vector<std::shared_ptr<pipeline_call>, recycling_allocator<std::shared_ptr<pipeline_call>>>;

/// A validated request for one rank, with what it is to be answered by.
struct submission {
  ticket name;
  operation what;
  nanoseconds deadline{}; ///< From now to the reply.
  reply_promise reply{};
  /// For reports and observers alone; none: the lane of those who name none, counted here.
  std::optional<request_origin> from{};
  std::uint64_t client = 0; ///< Where there is no `from`: as request_origin's.
  /// When it was accepted, where that was in an earlier epoch.
  std::optional<time_point> queued{};
  call_site site{}; ///< Where the client asked for it.
};

/// What pipelines of one process share.
struct pipeline_services {
  std::shared_ptr<const clock> time;
  std::shared_ptr<troupe::poller> poller;
  std::shared_ptr<slot_table> slots{};
  completion_strategy strategy = completion_strategy::automatic;
  track_limits limits{};
  /// What may be asked for; none: whatever is well formed.
  std::shared_ptr<const troupe::capabilities> able{};
  std::shared_ptr<staging_stock> staging{};    ///< None: each pipeline has one of its own.
  std::shared_ptr<launch_observer> observer{}; ///< Of most none.
  std::shared_ptr<flight_recorder> recorder{}; ///< None: nothing is written down.
  std::shared_ptr<hang_watch> hangs{};         ///< None: worlds share no devices.
};

/// Life: create() → init() → submit()… → close(), or fail() and abort().
/// Threads: prepare() and submit() from any (ORD-1: the order of calls to submit() is the order of launches); init(),
/// settle(), abort(), close() on helpers; the rest from any.
class rank_pipeline final : public launcher_check,
                            public launcher_tail,
                            public std::enable_shared_from_this<rank_pipeline> {
public:
  /// Cheap: touches neither the device nor a peer. \p on_fault is called at most once, from any thread, with the first
  /// fault seen.
  [[nodiscard]] static std::shared_ptr<rank_pipeline> create(pipeline_services services,
                                                             std::shared_ptr<communicator> peers,
                                                             std::weak_ptr<launcher> hand, epoch formed_in,
                                                             std::function<void(error)> on_fault);

  rank_pipeline(pipeline_services services, std::shared_ptr<communicator> peers, std::weak_ptr<launcher> hand,
                epoch formed_in, std::function<void(error)> on_fault);
  ~rank_pipeline() override;

  /// Makes the stream and meets the other ranks. Blocks.
  void init();
  /// The same where the communicator has been formed already: meets nobody.
  void init_formed();

  /// A validated operation that will be submitted: all that can be done before its place in the order is known.
  [[nodiscard]] std::shared_ptr<pipeline_call> prepare(submission one, time_point now);

  /// Sends a validated operation on its way. Never blocks on the device or a peer.
  void submit(std::shared_ptr<pipeline_call> prepared);
  void submit(submission one);
  void submit(ticket name, operation what, nanoseconds deadline, reply_promise reply) {
    submit({.name = name, .what = std::move(what), .deadline = deadline, .reply = std::move(reply)});
  }

  /// The same for several, launched by one call (communicator::launch_together()), of which all ranks are given the
  /// same. Each has its own answer; all are done when the last is. All or nothing: nothing of it is launched once the
  /// communicator has failed, and if the launch fails all have an unknown outcome (ORD-1).
  /// Errors: internal (one that may not be fused: see may_be_fused()); then none is launched, and all are answered so.
  void submit_together(pipeline_calls all);
  void submit_together(std::vector<submission> all);

  /// Launches that have been submitted and have not been made yet.
  [[nodiscard]] std::size_t unlaunched() const noexcept {
    const std::size_t made = launched_.load(); // first: it never overtakes the other
    return submitted_.load() - made;
  }
  /// \p hook is called on the launcher's thread after each launch. Before the first request.
  void on_launched(std::function<void()> hook) { after_launch_ = std::move(hook); }

  /// How far this rank has come. Never waits for the launcher or the device.
  [[nodiscard]] pipeline_progress progress() const;
  /// What its communicator's library said last.
  [[nodiscard]] library_words last_words() const { return peers_->last_words(); }
  /// \p hook is called on the poller when a request's deadline has passed before its outcome, with its answer; not
  /// again before something has finished. Before the first request.
  void on_late(std::function<void(error)> hook) { late_ = std::move(hook); }

  /// From now on requests are accepted but not launched, until resume(): their deadlines run. Not counted.
  void hold();
  /// After hold(): waits until everything that was submitted before is over on the device. Blocks.
  /// Errors: what made the communicator fail.
  void settle();
  /// Launches what was held, in the order of submission.
  void resume();
  /// For work between settle() and resume(). Helpers only.
  [[nodiscard]] communicator& peers() const noexcept { return *peers_; }

  /// \p work runs on the launcher's thread at this place among the launches; it must not throw. Dropped where the
  /// rank's communicator ends first.
  void sequence(std::function<void(rank_pipeline&)> work);
  /// For work that sequence() runs: enqueues validated requests into a stream in capture, as communicator::launch() and
  /// launch_together() do. Errors: what makes the communicator fail, which it then does.
  void launch_captured(std::span<const operation* const> all, stream_ref into);
  /// Of captured plans. They end before the communicator.
  [[nodiscard]] rank_graphs& graphs() noexcept { return *graphs_; }
  /// Its graph ends on the launcher's thread.
  void drop_graph(std::uint64_t plan) noexcept;

  /// Declares the communicator failed: nothing more is launched, and whatever has no outcome gets \p why with unknown
  /// outcome, or rejected if it certainly did not run. Returns whether this was the first failure.
  bool fail(error why);
  [[nodiscard]] bool failed() const noexcept { return mark_->failed(); }
  /// Why it failed; errc::none while it has not.
  [[nodiscard]] error fault() const { return mark_->failed() ? mark_->why() : error{}; }

  /// Waits until nothing is in flight. False when \p at_most has passed first.
  [[nodiscard]] bool drain(nanoseconds at_most);
  /// After fail(): makes the device let go of everything, then releases the buffers. Blocks.
  /// Order: waits for a launch that is under way, since it may still enqueue work on the buffers (BUF-1).
  void abort();
  /// After drain(): gives the communicator back; later requests are rejected. Blocks.
  /// Errors: the device's, if it has failed meanwhile; the communicator is then aborted.
  void close();

  [[nodiscard]] std::size_t load() const noexcept { return track_->load(); }
  [[nodiscard]] rank self() const noexcept { return peers_->self(); }
  [[nodiscard]] int world_size() const noexcept { return peers_->world_size(); }
  [[nodiscard]] epoch formed_in() const noexcept { return epoch_; }
  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept { return peers_->where(); }
  /// What a request to this rank is checked against.
  [[nodiscard]] seat sitting() const noexcept {
    return {self(), world_size(), *where(), services_.able.get(), {world_, epoch_}};
  }
  /// Before the first request: the number of the world that it belongs to (world_stamp).
  void belongs_to(std::uint64_t world);

  [[nodiscard]] bool loaded() const noexcept override { return load() > 0 && !failed(); }
  void check() noexcept override;

private:
  friend class pipeline_job;
  friend class pipeline_call;
  class fused_calls;
  class observed_launch;
  class sequenced_work;

  void prepare_device();
  void begin();
  void enqueue(std::shared_ptr<pipeline_job> work);
  void send(std::shared_ptr<pipeline_job> work);
  void begin_launch(time_point now) noexcept;
  void end_launch();
  void launch(pipeline_call& one);
  void launch(const pipeline_calls& several);
  /// How many of \p several need all ranks.
  [[nodiscard]] static std::uint64_t collectives_in(const pipeline_calls& several) noexcept;
  /// Only where there is an observer.
  void tell_observer(const pipeline_call& one) const noexcept;
  void tell_observer(const pipeline_calls& several);
  /// Behind a launch: arms its completion mark, or leaves that to end() or the next launch. Returns its place.
  [[nodiscard]] launch_place mark_launch(bool may_be_late);
  void arm_mark();
  void end() noexcept override;
  [[nodiscard]] bool is_unmarked() const noexcept { return unmarked_ > 0; }
  /// errc::none, or why nothing was launched here or on any rank.
  [[nodiscard]] error launch_replay(const replay& what);
  /// Tells whoever wants to hear of \p one's launch, which has been made as the \p launch th.
  void tell_of(const pipeline_call& one, shared_event behind, std::uint64_t launch) const noexcept;
  /// Why the launch call failed whose exception is being handled.
  [[nodiscard]] error launch_failure() const;
  /// False when the launcher has ended.
  bool post(std::function<void()> work);
  /// Takes the stream from the launcher, behind any launch or check that is under way. Empty if there was none.
  [[nodiscard]] std::shared_ptr<stream> take_stream();
  /// What \p question about the stream says on the launcher's thread, with guard_ held.
  [[nodiscard]] std::shared_ptr<stream> ask_launcher(std::function<std::shared_ptr<stream>()> question);
  /// Once the stream has been taken: from here on nothing of its own touches a request's buffers (BUF-1).
  void end_staging();
  void release_buffers();
  /// Declares the communicator failed at once, since launching on would break step with the peers (ORD-1), and tells
  /// the owner.
  void report(error why);
  [[nodiscard]] error probe();
  /// \p why, or what the device itself says where it can never be used again: a library that was refused a call cannot
  /// tell one from the other.
  [[nodiscard]] error judged(error why);

  pipeline_services services_;
  std::shared_ptr<communicator> peers_;
  /// Weak, because a launcher's last holder must not be a job on its own thread.
  std::weak_ptr<launcher> launcher_;
  epoch epoch_;
  std::uint64_t world_ = 0;
  std::shared_ptr<rank_graphs> graphs_ = std::make_shared<rank_graphs>();
  std::shared_ptr<stream> stream_;        ///< Made by init(), taken from the launcher; guard_ is for the others' looks.
  std::shared_ptr<host_staging> staging_; ///< Made by init(); the launcher's until the stream has been taken from it.
  std::shared_ptr<event_stock> events_;   ///< Made by init(): what clients wait for.
  std::shared_ptr<fault_mark> mark_;
  std::shared_ptr<track> track_;
  std::shared_ptr<progress_record> progress_ = std::make_shared<progress_record>();
  std::function<void()> after_launch_;
  std::function<void(error)> late_;
  std::atomic<std::uint64_t> unnamed_{0}; ///< Requests without origin.
  // The launcher's own.
  std::uint64_t launches_ = 0;
  std::uint64_t marks_ = 0;                ///< Armed.
  std::size_t unmarked_ = 0;               ///< Latest launches without a mark behind them.
  std::vector<const operation*> together_; ///< Kept for its capacity.
  std::vector<launched_request> observed_; ///< The same.

  std::mutex submit_guard_; ///< Makes the track's order and the launcher's one.
  bool held_ = false;
  std::vector<std::shared_ptr<pipeline_job>> waiting_;

  std::mutex guard_;
  std::function<void(error)> on_fault_;
  error found_; ///< What the launcher's check found, for the poller's probe.

  // Each on a cache line of its own: each has a writer of its own.
  alignas(64) std::atomic<std::size_t> submitted_{0};
  alignas(64) std::atomic<std::size_t> launched_{0};
  std::atomic<nanoseconds::rep> launching_since_{0}; ///< 0 while no launch is under way. The launcher's, too.
};

} // namespace troupe
