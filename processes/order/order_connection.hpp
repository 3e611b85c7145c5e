/// A process's connection to the order of a world over processes, and of the worlds that are split off it. Requests go
/// to the controller, and its decisions go to the rank's pipelines in the order in which they arrive (ORD-1, ORD-3).
#pragma once

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/order/combining_queue.hpp>
#include <troupe/collectives/order/world_order.hpp>
#include <troupe/collectives/pipeline/pipeline_call.hpp>
#include <troupe/collectives/pipeline/plans/capture_agreement.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/poller/latch.hpp>
#include <troupe/completion/sources/recycling.hpp>
#include <troupe/processes/order/batch_window.hpp>
#include <troupe/processes/order/codec/decision_codec.hpp>
#include <troupe/processes/order/codec/request_codec.hpp>
#include <troupe/processes/order/peer_requests.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

class order_connection;
struct ordered_rank;

/// Orders the requests of one rank through a connection.
class distributed_order final : public world_order {
public:
  /// Used by order_connection and open_world().
  distributed_order(std::shared_ptr<order_connection> through, std::shared_ptr<ordered_rank> self) noexcept
    : through_{std::move(through)}, self_{std::move(self)} {}

  /// Refuses a request that is too long to be encoded (invalid_argument), and every request after close().
  void ask(rank self, lane_request asked) override;
  void cancel(rank self, lane where, std::uint64_t position) override;
  void withdraw(rank self, std::uint64_t client, error why) override;

  void turn(turn_terms asked, turn_work work) override;
  void capture(const std::shared_ptr<captured_plan>& plan, nanoseconds deadline, nanoseconds limit,
               capture_start start) override;
  [[nodiscard]] nanoseconds capture_grace() const noexcept override;
  void set_registered(std::vector<std::shared_ptr<registered_pool>> pools) override;
  [[nodiscard]] bool opens_sub_worlds() const noexcept override { return true; }
  [[nodiscard]] std::shared_ptr<world_order> open_world(std::uint64_t number,
                                                        std::shared_ptr<rank_pipeline> pipeline) override;
  void decline_world(std::uint64_t number, error why) override;
  /// Leaving the whole world also closes the connection.
  std::shared_ptr<latch> leave(error why) override;
  std::shared_ptr<latch> close(error why, bool for_good = true) override;
  void hold(std::function<void()> quiet) override;
  void resume() override;
  void hand_over(std::shared_ptr<world_order> next, rank self, operation_check check, error why,
                 std::function<void()> done) override;
  [[nodiscard]] world_entry entry() override;
  void serve(rank_services what) override;
  [[nodiscard]] error objection_to(std::span<const rank_group> split) const override;

  /// Returns the requests between this process and the others of the world.
  [[nodiscard]] const std::shared_ptr<peer_requests>& peers() const noexcept;

  /// Returns order_connection::waiting().
  [[nodiscard]] std::size_t waiting() const;
  [[nodiscard]] error ending() const override;

private:
  const std::shared_ptr<order_connection> through_;
  const std::shared_ptr<ordered_rank> self_;
};

/// The counterpart of an order_server, for one process in one epoch. It carries the requests of the process's rank in
/// the whole world and in all sub-worlds.
///
/// Requests are sent in batches. The first batches are sent immediately. While two batches are unacknowledged, requests
/// are collected until the controller has acknowledged one batch, or until enough requests are collected. A single
/// request is therefore sent immediately, and a stream of requests needs few messages.
///
/// Requests that may be launched together also wait while the launcher has two launches to do, until one of them
/// overlaps with another. If they were sent earlier, they would be released one by one, and would not be launched
/// earlier.
///
/// Lifetime: callers must keep it alive during a call. The destructor calls close(). Threads: all functions may be
/// called from any thread; receive() must be called in the order in which batches arrive.
class order_connection final : public std::enable_shared_from_this<order_connection> {
public:
  /// Sends a batch to the controller's order_server. It is called from any thread, once at a time, in the order in
  /// which batches must arrive. It must not block or throw, and of this object it may call only close().
  using sender = std::function<void(std::string)>;

  /// \p pipeline: the rank's pipeline in the whole world. \p fused: which requests may be launched together, the same
  /// in all processes.
  /// \p exported: memory that requests of other processes may name. Null: none.
  order_connection(std::shared_ptr<rank_pipeline> pipeline, epoch formed_in, std::shared_ptr<const clock> time,
                   sender send, fusion_limits fused = {.mode = fusion::off},
                   std::shared_ptr<exported_memory> exported = {});
  ~order_connection();

  /// Returns the rank's access to the order of the whole world.
  [[nodiscard]] std::shared_ptr<distributed_order> whole();

  /// Executes the controller's decisions. Errors: internal (the bytes cannot be read, or they decide a request that
  /// does not exist): the order is lost, and the world must fail. A batch of an older epoch is dropped.
  [[nodiscard]] error receive(std::string_view batch);

  /// Answers requests that have waited one second past their deadline. The controller is then considered unresponsive,
  /// because it would have answered at the deadline. The request keeps its place: if it is released later, it is
  /// launched (ORD-1). An agree is not answered here: peers may receive its value, so only the controller refuses it,
  /// at all ranks, or the epoch ends. Also ends leases of other processes that were not renewed. Call it as often as
  /// exported_memory::expire().
  void expire(time_point now);
  /// Reports to the controller how many requests have succeeded, and what the rank has launched and finished last. Does
  /// nothing if the controller knows both. Batches of requests also report how many have succeeded.
  void tell_progress();

  /// Answers requests of all worlds that are not released, and all later ones, with \p why as rejected. Sends nothing
  /// more, except a batch that another thread is sending. Only the first call has an effect.
  void close(error why);

  /// Returns why the controller has closed the order of the epoch: later requests are refused, and the controller's
  /// directive to end the epoch follows. errc::none if it has not.
  [[nodiscard]] error ending() const;
  /// Returns the number of requests, in all worlds, that the controller has not decided.
  [[nodiscard]] std::size_t waiting() const;
  /// Returns the number of the controller's batches of decisions for the rank that have been followed.
  [[nodiscard]] std::uint64_t followed() const noexcept { return followed_.load(std::memory_order_acquire); }
  /// Returns the number of batches sent.
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_.load(std::memory_order_relaxed); }

private:
  friend class distributed_order;
  // For distributed_order.
  void ask(const std::shared_ptr<ordered_rank>& of, lane_request asked);
  [[nodiscard]] std::shared_ptr<distributed_order> open(std::uint64_t world, std::shared_ptr<rank_pipeline> pipeline);
  void decline(std::uint64_t world, error why);
  void set_registered(const std::shared_ptr<ordered_rank>& of, std::vector<std::shared_ptr<registered_pool>> pools);
  /// Ends a rank's part in a world: see distributed_order::leave(). \p for_good: false if only the epoch ends.
  void leave(const std::shared_ptr<ordered_rank>& of, error why, bool for_good);

  /// A request that the controller has not decided.
  struct undecided_ask {
    std::shared_ptr<ordered_rank> of{};
    std::shared_ptr<pipeline_call> call{};
    lane where{};
    std::uint64_t client = 0;
    std::optional<std::uint64_t> position{}; ///< The position that its client gave, if any.
    std::unique_ptr<error> objection{};      ///< See lane_request.
    /// Time at which it is answered even if the controller is silent; never for an agree.
    time_point give_up = time_point::max();
  };
  /// Such requests by number. Its memory is reused.
  using undecided_asks = std::map<std::uint64_t, undecided_ask, std::less<>,
                                  recycling_allocator<std::pair<const std::uint64_t, undecided_ask>>>;
  struct refused_call {
    std::shared_ptr<pipeline_call> call;
    error why;
  };
  struct released_call {
    std::shared_ptr<ordered_rank> of;
    std::shared_ptr<pipeline_call> call;
    std::vector<std::shared_ptr<pipeline_call>> others{}; ///< Launched together with it.
    std::shared_ptr<const agreed_value> agreed{};         ///< Set for an agree: its value.
  };
  /// An action to execute in this process: a launch, an answer, or other work, such as that of a turn.
  using step = std::variant<released_call, refused_call, std::function<void()>>;

  /// Answers an agree with its value.
  static void answer(const released_call& agree, time_point now);
  /// Adds a request to the next batch. \p deadline: as its client gave it.
  void take(undecided_ask asked, nanoseconds deadline);
  /// See distributed_order::hand_over().
  void hand_over(std::shared_ptr<world_order> next, rank self, world_order::operation_check check, error why,
                 std::function<void()> done);
  /// Asks the next order for a request that this one has not decided.
  void pass_on(undecided_ask asked) const;
  /// Ends the connection with \p why. \p next: see next_; null if undecided requests are refused.
  void close(error why, std::shared_ptr<world_order> next);
  /// Selects the world of \p of and returns the writer of the next batch. Records that are written this way are sent
  /// without waiting for the launcher (awaits_launcher()). Called only by tasks of queue_.
  [[nodiscard]] request_writer& records_of(const ordered_rank& of);
  /// Runs a task of queue_ that does nothing if the connection is closed.
  template <class Task>
  void run_open(Task task);
  /// Writes a record about \p of after the requests that have been made so far. Does nothing if the connection is
  /// closed.
  void write(const std::shared_ptr<ordered_rank>& of, request_record record);
  /// After hand_over() calls \p pass instead, with the next order.
  void write(const std::shared_ptr<ordered_rank>& of, request_record record,
             std::function<void(world_order& next, rank self)> pass);
  /// Returns whether the batch can wait for the launcher with the next request in it.
  [[nodiscard]] bool may_join_batch(const request_facts& facts) noexcept;
  /// Returns the facts of the next request, by which the controller decides whether to launch it together with others.
  [[nodiscard]] request_facts examine(ordered_rank& of, const operation& what);
  /// Returns how often \p of has captured a plan called \p name, this time included.
  [[nodiscard]] std::uint64_t count_capture(ordered_rank& of, const std::string& name);
  void ask_turn(const std::shared_ptr<ordered_rank>& of, turn_terms terms, distributed_order::turn_work work,
                distributed_order::capture_start start);
  void end_round() noexcept;
  /// Sends the records that have been written as one batch, with the number of successes in the whole world.
  void send_batch(std::uint64_t succeeded);
  /// Sends the kept batches that the window has room for.
  void send_kept();
  void write_successes();
  [[nodiscard]] bool may_send() const noexcept;
  /// Returns whether the next batch waits for the launcher.
  [[nodiscard]] bool awaits_launcher() const;
  [[nodiscard]] bool is_launcher_busy() const;
  [[nodiscard]] bool is_closed() const noexcept { return is_closed_.load(std::memory_order_acquire); }
  [[nodiscard]] error decide(decision_record& one);
  void follow(step& next);
  [[nodiscard]] std::shared_ptr<ordered_rank> find(std::uint64_t world) const;
  [[nodiscard]] error decide_turn(decision_record& one);
  [[nodiscard]] error decide_capture(decision_record& one);
  [[nodiscard]] error decide_close(decision_record& one);
  [[nodiscard]] error decide_message(decision_record& one);
  /// Sends messages to other processes of \p world.
  void send_messages(std::uint64_t world, peer_requests::messages all);
  /// Makes each launch of \p of check whether the batch that waits for its launcher can be sent.
  void watch(const ordered_rank& of);
  std::shared_ptr<ordered_rank> add(std::uint64_t world, std::shared_ptr<rank_pipeline> pipeline);
  /// Refuses the undecided turns and fails the captures of \p of, whose requests have been answered already. Call it
  /// without mutex_.
  static void end(ordered_rank& of, const error& why);

  const epoch epoch_;
  const std::shared_ptr<const clock> time_;
  const fusion_limits fused_;
  const std::shared_ptr<exported_memory> exported_;
  /// Refers to this object. Shared with the senders of peer_requests, which may outlive it.
  const std::shared_ptr<std::weak_ptr<order_connection>> self_ = std::make_shared<std::weak_ptr<order_connection>>();

  // Accessed only by tasks of queue_, except the atomics.
  batch_window window_;
  request_writer out_;
  request_record successes_{.kind = request_record::form::succeeded}; ///< A member so that it is made once.
  /// Set by hand_over(): the order that is asked for what this one has not decided, the rank there, and the check. They
  /// do not change when queue_ has retired.
  std::shared_ptr<world_order> next_{};
  rank next_self_{};
  world_order::operation_check next_check_{};
  bool must_report_ = false;         ///< The next batch is sent even if it only reports successes.
  bool has_sent_limits_ = false;     ///< The controller knows the limits of fused_.
  bool may_wait_ = true;             ///< All records of the next batch are requests that may be launched together.
  std::uint64_t first_of_batch_ = 0; ///< The number of the first request in the next batch; 0: it has none.
  company_forecast forecast_;
  alignas(64) std::atomic<std::uint64_t> sent_{0};
  std::atomic<bool> holds_back_{false}; ///< Requests or batches wait until the controller has seen more batches.
  /// Requests wait until a launcher has fewer launches. Shared with the pipelines' hooks.
  const std::shared_ptr<std::atomic<bool>> awaits_launcher_ = std::make_shared<std::atomic<bool>>(false);

  /// Held by receive() and expire(), so that a request is not answered while it is submitted. Locked before mutex_.
  std::mutex deciding_;
  // Accessed only by receive(), except the atomic.
  alignas(64) std::atomic<std::uint64_t> seen_{0}; ///< Number of batches that the controller has seen.
  std::atomic<std::uint64_t> followed_{0};         ///< See followed().
  std::uint64_t received_ = 0;
  decision_reader in_;
  std::vector<step> steps_;                  ///< A member so that its memory is reused.
  std::optional<std::size_t> last_released_; ///< Index in steps_ of the last release, if only releases follow it.

  mutable std::mutex mutex_;
  undecided_asks asks_;
  std::uint64_t asked_ = 0; ///< The number of the last request. They are numbered from 1 in the order of asks.
  std::vector<std::shared_ptr<ordered_rank>> worlds_; ///< In the order of their numbers; the first is the whole world.
  /// Messages for worlds that are not open here yet, by their numbers.
  std::map<std::uint64_t, std::vector<std::pair<process_address, std::string>>> early_;
  std::set<std::uint64_t> declined_;   ///< The worlds that the rank leaves without having opened them.
  std::atomic<bool> has_parts_{false}; ///< Whether a sub-world has been opened.
  time_point due_ = time_point::max(); ///< No request is given up before this time.
  error ending_;                       ///< See ending().
  error closed_;
  std::atomic<bool> is_closed_{false}; ///< Whether closed_ is set, and that of each world. Readable without the lock.

  const std::shared_ptr<ordered_rank> whole_; ///< Declared here, because its initialisation uses the members above.
  combining_queue queue_;                     ///< Declared last, because its tasks use all other members.
};

} // namespace troupe
