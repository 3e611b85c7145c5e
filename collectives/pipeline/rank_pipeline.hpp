/// One rank's path to its GPU and back: takes a request, launches it on the launcher's thread, lets the poller see its
/// completion, and answers. Owns the rank's stream and communicator for one epoch.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/launch_observer.hpp>
#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/operation/validation.hpp>
#include <troupe/collectives/pipeline/late_answers.hpp>
#include <troupe/collectives/pipeline/launch_backlog.hpp>
#include <troupe/collectives/pipeline/launcher.hpp>
#include <troupe/collectives/pipeline/rank_graphs.hpp>
#include <troupe/collectives/pipeline/staging/host_staging.hpp>
#include <troupe/collectives/progress/progress_record.hpp>
#include <troupe/collectives/recording/flight_recorder.hpp>
#include <troupe/completion/poller/poller.hpp>
#include <troupe/completion/poller/serving_lease.hpp>
#include <troupe/completion/poller/track.hpp>
#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/completion/sources/recycling.hpp>
#include <troupe/device/event_pool.hpp>
#include <troupe/device/identity.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

class pipeline_call;
class rank_pipeline;
using pipeline_calls = std::vector<std::shared_ptr<pipeline_call>, recycling_allocator<std::shared_ptr<pipeline_call>>>;

/// A validated request for one rank, and its reply promise.
struct submission {
  ticket name;
  operation what;
  nanoseconds deadline{}; ///< Longest time from now to the reply.
  reply_promise reply{};
  /// Used only in reports and by observers. nullopt: the default lane, with a position counted by the pipeline.
  std::optional<request_origin> from{};
  std::uint64_t client = 0; ///< Becomes request_origin::client if `from` is nullopt.
  call_site site{};         ///< The place in the client's source.
};

/// Services that the pipelines of one process share.
struct pipeline_services {
  std::shared_ptr<const clock> time;
  std::shared_ptr<troupe::poller> poller;
  std::shared_ptr<slot_table> slots{};
  completion_strategy strategy = completion_strategy::automatic;
  track_limits limits{};
  /// Determines which operations may be requested; null: all well-formed ones.
  std::shared_ptr<const troupe::capabilities> able{};
  std::shared_ptr<staging_stock> staging{};     ///< Null: each pipeline allocates its own staging memory.
  std::shared_ptr<launch_observer> observer{};  ///< Notified of each launch; usually null.
  std::shared_ptr<flight_recorder> recorder{};  ///< Null: requests are not recorded.
  std::shared_ptr<hang_watch> hangs{};          ///< Null: a hang is judged without regard to other worlds.
  std::shared_ptr<const serving_lease> lease{}; ///< Of a world over processes (MEM-1); null: none is needed.
};

/// A job of a pipeline for its launcher.
class pipeline_job : public launcher_job {
public:
  std::shared_ptr<launcher_tail> run() noexcept final;
  /// Called instead of launch() if the job will not be launched.
  virtual void refuse_launch(const error& why) noexcept = 0;

protected:
  [[nodiscard]] const rank_pipeline* by() const noexcept { return by_.get(); }

private:
  friend class rank_pipeline;
  virtual void launch(rank_pipeline& by) noexcept = 0;

  std::shared_ptr<rank_pipeline> by_; ///< Set while the launcher has the job.
};

/// Lifetime: create() → init() → submit()… → close(), or fail() and abort().
/// Threads: prepare() and submit() from any (ORD-1: the order of calls to submit() is the order of launches); init(),
/// settle(), abort(), close() on helper threads; the rest from any.
class rank_pipeline final : public launcher_check,
                            public launcher_tail,
                            public std::enable_shared_from_this<rank_pipeline> {
public:
  /// Creates a pipeline. Cheap: uses neither the device nor a peer. \p on_fault is called at most once, from any
  /// thread, with the first fault seen.
  [[nodiscard]] static std::shared_ptr<rank_pipeline> create(pipeline_services services,
                                                             std::shared_ptr<communicator> peers,
                                                             std::weak_ptr<launcher> launch_thread, epoch formed_in,
                                                             std::function<void(error)> on_fault);

  rank_pipeline(pipeline_services services, std::shared_ptr<communicator> peers, std::weak_ptr<launcher> launch_thread,
                epoch formed_in, std::function<void(error)> on_fault);
  ~rank_pipeline() override;

  /// Makes the stream and forms the communicator with the other ranks. Blocks.
  void init();
  /// As init(), for a communicator that is formed already. Waits for other ranks only if its warm-up does.
  void init_formed();

  /// Prepares a validated operation for submit(), as far as possible before its place in the order is known.
  [[nodiscard]] std::shared_ptr<pipeline_call> prepare(submission&& one, time_point now);

  /// Submits a validated operation. Never blocks on the device or a peer.
  void submit(std::shared_ptr<pipeline_call> prepared);
  void submit(submission one);
  void submit(ticket name, operation what, nanoseconds deadline, reply_promise reply) {
    submit({.name = name, .what = std::move(what), .deadline = deadline, .reply = std::move(reply)});
  }

  /// Submits several operations that one call launches (communicator::launch_together()). All ranks must be given the
  /// same ones. Each has its own reply; all complete with the last one. All or nothing: none is launched once the
  /// communicator has failed, and if the launch fails, all have an unknown outcome (ORD-1).
  /// If one may not be fused (may_be_fused()), none is launched, all get errc::internal, and the communicator has
  /// failed, because peers launch theirs. Does not throw because of its arguments: the tasks of the order are noexcept.
  void submit_together(pipeline_calls all);
  void submit_together(std::vector<submission> all);

  /// Calls \p answer, which reports the success of an operation without a launch, under the lease (MEM-1): at once if
  /// it is held, else on the launcher's thread when it has been renewed, in the order of these calls. If the
  /// communicator fails first, fail() calls it with the reason.
  template <class Answer>
  void answer_under_lease(Answer answer) {
    may_answer() ? answer(error{}) : answer_late(std::move(answer));
  }
  /// Waits for a lapsed lease to be renewed. Returns why success may not be reported (MEM-1); errc::none if it may.
  [[nodiscard]] error await_lease() const;

  /// Returns the number of launches that the launcher has and has not made yet. Held ones do not count.
  [[nodiscard]] std::size_t unlaunched() const noexcept { return backlog_.unlaunched(); }
  /// Sets a hook that is called on the launcher's thread after each launch. Call before the first request.
  void on_launched(std::function<void()> hook) { hooks_.after_launch = std::move(hook); }

  /// Returns the progress of this rank. Never waits for the launcher or the device.
  [[nodiscard]] pipeline_progress progress() const;
  /// Returns the count of successful requests (pipeline_call::released_as()). It may outlive the pipeline.
  [[nodiscard]] std::shared_ptr<const success_count> successes() const noexcept {
    return {progress_, &progress_->successes};
  }
  /// Sets the record of the commits that succeed here. Call before the first request.
  void record_commits(std::shared_ptr<commit_record> into) { progress_->commits = std::move(into); }
  /// Returns the last messages of its communicator's library.
  [[nodiscard]] library_diagnostics last_diagnostics() const { return peers_->last_diagnostics(); }
  /// Sets a hook that is called on the poller's thread, with the reply, when a request's deadline has passed before its
  /// outcome. It is called again only after another request has finished. Call before the first request.
  void on_late(std::function<void(error)> hook) { hooks_.late = std::move(hook); }

  /// Accepts requests from now on without launching them, until resume(). Their deadlines keep running. Each call needs
  /// a resume() of its own: the k-th resume() launches what was submitted between the k-th hold() and the next one.
  void hold();
  /// Blocks until all requests submitted before hold() have finished on the device. Call after hold().
  /// Errors: the failure of the communicator.
  void settle();
  /// Ends the oldest hold(): launches its requests, in the order of submission. Does nothing if there is none.
  void resume();
  /// Returns the communicator, for work between settle() and resume(). Helper threads only.
  [[nodiscard]] communicator& peers() const noexcept { return *peers_; }

  /// Runs \p work on the launcher's thread, at this position in the order of launches. It must not throw. Dropped if
  /// the rank's communicator ends first.
  void sequence(std::function<void(rank_pipeline&)> work);
  /// Calls the user's function, which enqueues its work in \p into.
  void launch_call(const call& what, stream_ref into) const;
  /// For work that sequence() runs: enqueues validated requests into a stream in capture, as communicator::launch() and
  /// launch_together() do. Errors: those of a launch, which make the communicator fail.
  void launch_captured(std::span<const operation* const> all, stream_ref into);
  /// Returns the graphs of captured plans. They are destroyed before the communicator.
  [[nodiscard]] rank_graphs& graphs() noexcept { return *graphs_; }
  /// Destroys the graph of \p plan on the launcher's thread.
  void drop_graph(std::uint64_t plan) noexcept;

  /// Declares the communicator failed. Nothing more is launched. Requests without outcome get \p why with unknown
  /// outcome, or as rejected if they certainly did not run. Returns whether this was the first failure.
  bool fail(error why);
  [[nodiscard]] bool failed() const noexcept { return mark_->failed(); }
  /// Returns why it failed; errc::none if it has not.
  [[nodiscard]] error fault() const { return mark_->failed() ? mark_->why() : error{}; }

  /// Waits until no request is in flight. Returns false if \p at_most passed first.
  [[nodiscard]] bool drain(nanoseconds at_most);
  /// After fail(): makes the device stop all work of this pipeline, then releases the buffers. Blocks.
  /// Order: waits for a launch in progress, because it may still enqueue work on the buffers (BUF-1).
  void abort();
  /// After drain(): destroys the communicator. Later requests are rejected. Blocks.
  /// Errors: those of the device, if it has failed meanwhile; the communicator is then aborted.
  void close();

  [[nodiscard]] std::size_t load() const noexcept { return track_->load(); }
  [[nodiscard]] rank self() const noexcept { return peers_->self(); }
  [[nodiscard]] int world_size() const noexcept { return peers_->world_size(); }
  [[nodiscard]] epoch formed_in() const noexcept { return epoch_; }
  /// Returns whether the end of a launch wakes the poller (completion_source::rings()).
  [[nodiscard]] bool rings() const noexcept { return track_->source().rings(); }
  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept { return peers_->where(); }
  /// Returns the rank's data against which requests are validated.
  [[nodiscard]] rank_context context() const noexcept {
    return {self(), world_size(), *where(), services_.able.get(), {world_, epoch_}};
  }
  /// Sets the number of its world (world_stamp). Call before the first request.
  void belongs_to(std::uint64_t world);

  [[nodiscard]] bool loaded() const noexcept override { return load() > 0 && !failed(); }
  void check() noexcept override;

private:
  friend class pipeline_job;
  friend class pipeline_call;
  class fused_calls;
  class observed_launch;
  class sequenced_work;

  /// Makes the stream and what belongs to it. Returns the stream, which an abort may take at any time.
  [[nodiscard]] std::shared_ptr<stream> prepare_device();
  void begin();
  void enqueue(std::shared_ptr<pipeline_job> work);
  void send(std::shared_ptr<pipeline_job> work);
  void end_launch();
  void launch(pipeline_call& one);
  void launch(const pipeline_calls& several);
  /// Result of enqueueing a launch. with_word: the launch writes the completion word that was passed.
  enum class enqueued : std::uint8_t { refused, without_word, with_word };
  /// Waits for a lapsed lease to be renewed, and otherwise declares the communicator failed. Returns whether it is
  /// held.
  [[nodiscard]] bool may_launch();
  [[nodiscard]] bool may_answer() const noexcept;
  void answer_late(late_answers::answer answer);
  /// Makes one launch of \p several, which \p enqueue puts into the stream. It is given the completion word of the next
  /// mark, which may be null.
  template <class Calls, class Enqueue>
  void launch_calls(const Calls& several, bool may_be_late, const Enqueue& enqueue);
  /// Wakes the poller for submitted requests, whose earliest deadline is \p deadline. Where the end of the work rings
  /// the poller's bell, only if the poller would sleep for too long otherwise.
  void tell_poller(time_point deadline);
  /// Wakes a poller that sleeps until its bell rings, if what was launched at \p at may have ended before the poller
  /// could see the launch. Empty: it was refused.
  void ring_for_launch(std::optional<launch_place> at) const noexcept;
  /// Returns how many of \p several need all ranks.
  template <class Calls>
  [[nodiscard]] static std::uint64_t collectives_in(const Calls& several) noexcept;
  /// Arms the completion mark of the last launch, unless the launch itself writes it, or leaves that to end() or the
  /// next launch. Returns the number of the launch and of its mark.
  [[nodiscard]] launch_place mark_launch(enqueued result, bool may_be_late);
  void arm_mark();
  void note_mark() noexcept;
  void end() noexcept override;
  [[nodiscard]] bool is_unmarked() const noexcept { return counts_.unmarked > 0; }
  /// Returns errc::none, or the reason why no rank launched the replay.
  [[nodiscard]] error launch_replay(const replay& what);
  /// Notifies the listener of \p one of its launch, which has the number \p launch.
  void notify_listener(const pipeline_call& one, shared_event behind, std::uint64_t launch) const noexcept;
  /// Returns why the launch call failed. Call in the handler of its exception.
  [[nodiscard]] error launch_failure() const;
  /// Returns false if the launcher has ended.
  bool post(std::function<void()> work);
  /// Takes the stream from the launcher, after any launch or check in progress. Returns null if there was none.
  [[nodiscard]] std::shared_ptr<stream> take_stream();
  /// Calls \p question on the launcher's thread, with mutex_ locked, and returns its result.
  [[nodiscard]] std::shared_ptr<stream> ask_launcher(std::function<std::shared_ptr<stream>()> question);
  /// Call after the stream was taken. After it returns, no staging stream or host function accesses a request's buffers
  /// (BUF-1).
  void end_staging();
  void release_buffers();
  /// Declares the communicator failed at once and notifies the owner. Further launches would no longer match those of
  /// the peers (ORD-1).
  void report(error why);
  [[nodiscard]] error probe();
  /// Returns \p why, or the device's own error if the device can never be used again. A library whose call was refused
  /// cannot distinguish the two.
  [[nodiscard]] error judged(error why);

  /// Set before the first request.
  struct hooks {
    std::function<void()> after_launch{};
    std::function<void(error)> late{};
  };
  struct launch_counts {
    std::uint64_t launches = 0;
    std::uint64_t marks = 0;  ///< Number of marks that are armed or that launches write.
    std::size_t unmarked = 0; ///< Number of latest launches without a mark after them.
  };

  pipeline_services services_;
  std::shared_ptr<communicator> peers_;
  /// Weak, because a job on the launcher's own thread must not be its last owner.
  std::weak_ptr<launcher> launcher_;
  epoch epoch_;
  std::uint64_t world_ = 0;
  std::shared_ptr<rank_graphs> graphs_ = std::make_shared<rank_graphs>();
  std::shared_ptr<stream> stream_; ///< Made by init(), removed by take_stream(). Other threads read it under mutex_.
  /// Made by init(). Used only by the launcher until the stream was taken from it.
  std::shared_ptr<host_staging> staging_;
  std::shared_ptr<event_pool> events_; ///< Made by init(). Contains the events that clients wait for.
  std::shared_ptr<fault_mark> mark_;
  std::shared_ptr<track> track_;
  std::shared_ptr<progress_record> progress_ = std::make_shared<progress_record>();
  hooks hooks_;
  std::atomic<std::uint64_t> unnamed_{0}; ///< Number of requests without an origin.
  // Accessed only by the launcher.
  launch_counts counts_;
  std::vector<const operation*> together_; ///< A member to reuse its memory.
  std::vector<launched_request> observed_; ///< A member to reuse its memory.

  std::mutex submit_guard_; ///< Keeps the orders of the track and of the launcher equal.
  std::deque<std::vector<std::shared_ptr<pipeline_job>>>
      held_; ///< Jobs submitted after each hold(), the oldest hold first.

  std::mutex mutex_;
  std::function<void(error)> on_fault_;
  error found_; ///< Found by the launcher's check, for the poller's probe.

  late_answers late_answers_;
  launch_backlog backlog_;
};

} // namespace troupe
