/// Executes the decisions of world_state: forms the ranks, opens and closes them for requests, opens the order, aborts
/// and releases. It does not use CAF, so the simulator runs the same code.
#pragma once

#include <troupe/actors/caf/requests.hpp>
#include <troupe/actors/rank/collective_state.hpp>
#include <troupe/actors/world/request_gate.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/actors/world/world_notes.hpp>
#include <troupe/actors/world/world_plan.hpp>
#include <troupe/actors/world/world_state.hpp>
#include <troupe/collectives/operation/rank_group.hpp>
#include <troupe/collectives/order/world_order.hpp>
#include <troupe/collectives/pipeline/fault_report.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/poller/latch.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

class capture_session;

/// Delivers notes to a world's executor, one at a time; notes from one thread keep their order. Notes are dropped after
/// the world has ended. Threads: safe from any. It outlives the world.
class world_mailbox {
public:
  world_mailbox() = default;
  world_mailbox(const world_mailbox&) = delete;
  world_mailbox& operator=(const world_mailbox&) = delete;
  virtual ~world_mailbox() = default;

  virtual void post(world_note what) = 0;
  virtual void post_after(nanoseconds delay, world_note what) = 0;
};

/// Callbacks of world_executor. They are called while the executor runs.
class world_shell {
public:
  world_shell() = default;
  world_shell(const world_shell&) = delete;
  world_shell& operator=(const world_shell&) = delete;
  virtual ~world_shell() = default;

  /// Called when the epoch has ended with \p why, before its pipelines are aborted. \p for_good: no other follows.
  virtual void epoch_ended([[maybe_unused]] const error& why, [[maybe_unused]] bool for_good) {}
  /// Called when the epoch is to end without a fault. The latch opens when the sub-worlds have no operation in flight;
  /// null if there are no sub-worlds.
  [[nodiscard]] virtual std::shared_ptr<latch> quiesce([[maybe_unused]] const error& why) { return nullptr; }
  /// Called when an epoch is ready, with ordering::agreed.
  virtual void formed_again() {}
  /// Replaces the actor at \p place, which has ended, with a new one for rank \p self. Returns the new actor's state.
  [[nodiscard]] virtual std::shared_ptr<collective_state> replace_rank(std::size_t place, rank self) = 0;
  /// Ends the ranks' actors and the world's, because all resources have been released.
  virtual void leave() = 0;
};

/// One piece of work, for example a split, a registration of memory, or one half of a suspension. The world holds
/// requests, waits until the launched operations have ended, runs the work, and continues. Its place in the order of
/// requests is a turn of this name.
struct maintenance {
  std::string name;                 ///< The name in messages: "the split". At most longest_plan_name_bytes.
  std::vector<rank_group> split{};  ///< turn_terms::split
  std::vector<told_commits> told{}; ///< turn_terms::told
  /// Called in the world's actor when the work's turn has come. \p opened: the sub-worlds of which the local rank is a
  /// member, if the order has opened them.
  std::function<void(std::vector<opened_world> opened)> granted{};
  /// Whether the work restores something that the world had in its previous epoch. It then waits for its turn without
  /// limit, and a stop does not wait for it.
  bool restores = false;
  /// Optional condition: the work runs when it returns true. Until then the world continues to hold requests.
  std::function<bool()> is_due{};
  /// The work for one local rank. It runs in helpers for all ranks at once, because ranks may wait for each other. An
  /// exception fails the world.
  std::function<void(rank_pipeline&)> step{};
  /// Called once in the world's actor, with errc::none when all ranks have finished, else with the reason why the work
  /// was not done.
  std::function<void(const error&)> done{};
};

/// One value for each local rank, set by helpers. Threads: safe from any.
template <class Value>
class rank_results {
public:
  void set(rank self, Value made) {
    const std::lock_guard lock{mutex_};
    all_.insert_or_assign(self, std::move(made));
  }
  [[nodiscard]] Value of(rank self) const {
    const std::lock_guard lock{mutex_};
    return all_.at(self);
  }
  /// Returns the values in rank order.
  [[nodiscard]] std::vector<Value> all() const {
    const std::lock_guard lock{mutex_};
    std::vector<Value> values;
    for (const auto& [self, value] : all_) values.push_back(value);
    return values;
  }

private:
  mutable std::mutex mutex_;
  std::map<rank, Value> all_;
};

/// Passes events to world_state and executes the returned effects. Work that may block runs in helpers (BLK-1).
/// Threads: gate() from any; all other calls one at a time.
class world_executor {
public:
  /// \p states are the states of the local ranks' actors in the order of \p plan's locals. This order defines their
  /// places, which do not change when ranks leave. \p shell must outlive it.
  world_executor(world_plan plan, std::vector<std::shared_ptr<collective_state>> states,
                 std::shared_ptr<world_mailbox> mail, world_shell& shell);

  void begin();
  void on(world_note note);
  /// Handles the end of the actor at \p place.
  void on_rank_ended(std::size_t place, const std::string& reason);
  /// Records that a sub-world has ended a recovery of its own, successfully or not.
  void sub_world_is_back(restored_part one);
  void stop();
  /// Ends the world at once, because no further calls will follow: steps that would wait for reports are done
  /// immediately.
  void kill(const error& why);
  /// Releases everything, after leave() or kill().
  void let_go();

  // Each perform() executes one kind of client request.
  void perform(const registration_request& asked, std::shared_ptr<registration_promise> reply);
  void perform(const suspension_request& asked, std::shared_ptr<suspension_answer> reply);
  void perform(const resumption_request& asked, std::shared_ptr<resumption_answer> reply);
  void perform(capture_request asked, const std::shared_ptr<capture_answer>& reply);
  void perform(const credit_request& asked, const std::shared_ptr<credit_answer>& reply);
  /// Queues \p steps, which run one after the other when no operation is in flight. The turn is that of the first one.
  /// Requires that objection_to_maintenance() is errc::none.
  void maintain(std::deque<maintenance> steps);
  void maintain(maintenance work);
  [[nodiscard]] error objection_to_maintenance(epoch meant_for) const {
    return state_.maintenance_objection(meant_for);
  }
  [[nodiscard]] error objection_to_maintenance() const { return objection_to_maintenance(state_.current_epoch()); }

  [[nodiscard]] request_gate& gate() noexcept { return *gate_; }
  /// Returns the order of the present epoch; never null.
  [[nodiscard]] const std::shared_ptr<world_order>& order() const noexcept { return order_; }
  /// Returns whether the present epoch, in a world over processes, has a process that the previous one had not.
  [[nodiscard]] bool has_newcomers() const noexcept { return has_newcomers_; }
  [[nodiscard]] epoch current_epoch() const noexcept { return state_.current_epoch(); }
  /// Returns the plan with the ranks that the world has now.
  [[nodiscard]] const world_plan& plan() const noexcept { return plan_; }
  /// Returns the event that would be announced now, without reports.
  [[nodiscard]] world_event event() const;

private:
  using pipelines = std::vector<std::shared_ptr<rank_pipeline>>;
  using step = std::function<void(rank_pipeline&)>;

  void carry_out(const world_effects& effects);
  void follow(const controller_directive& from);
  /// Applies the process's rank and id for the epoch that is to form.
  void take_rank(const formation_order& order);
  using communicators = std::vector<std::shared_ptr<communicator>>;

  void form(const world_effect::form& how);
  [[nodiscard]] step forming(const world_effect::form& how);
  using spares = std::map<std::shared_ptr<device>, std::shared_ptr<spare_streams>>;
  /// Frees the spare streams of \p of's device before \p of forms beside operations that hang there.
  static void give_back_spares(const spares& all, const rank_pipeline& of);
  /// Refills the spare streams of \p of's device when none of our operations hangs there. May wait for the device.
  static void keep_spares(const spares& all, const rank_pipeline& of);
  [[nodiscard]] communicators make_communicators() const;
  [[nodiscard]] communicators make_communicators(const world_effect::form& how);
  /// Derives communicators from the failed ones. Errors: unsupported, communicator_failed.
  [[nodiscard]] communicators derive_communicators(const world_effect::form& how, const pipelines& failed) const;
  /// Removes \p what.ranks, given by their present numbers, from the next epoch.
  void lose(const world_effect::lose& what);
  /// Returns the ranks that recovery_policy::shrink excludes after \p why.
  [[nodiscard]] std::vector<rank> blamed_for(const error& why) const;
  void adopt();
  [[nodiscard]] std::shared_ptr<world_order> open_order();
  void close_order(const error& reason);
  void close_gates(const error& reason);
  void abort();
  void drain();
  /// Publishes \p event on the world's status, whose listeners are the subscribers.
  void announce(world_event event);
  /// Takes a fault report at the first failure of an epoch, before the pipelines are marked as failed. Returns \p why
  /// with the suspects (fault_of()). \p is_verdict: see fault_report.
  error take_report(epoch of, error why, bool is_verdict = false);
  /// Announces that a request's deadline has passed. This alone is not a fault.
  void announce_late(const rank_report& one);
  [[nodiscard]] local_names local_names_here() const;
  [[nodiscard]] rank_services services_for_peers();
  void on_peer_capture(peer_capture asked);
  /// Publishes the present conditions to the request gate.
  void publish();
  void retire();
  /// Runs \p work on every local rank's pipeline in helpers, and posts a report at each end.
  void on_every_rank(const char* doing, nanoseconds deadline, rank_report::kind report, const step& work);
  void on_each(const pipelines& all, const char* doing, nanoseconds deadline, rank_report::kind report,
               const step& work);
  /// Posts \p report for the local ranks whose pipelines could not be created, because they have no work to report on.
  void report_for_uncreated(rank_report::kind report);

  void on_turn(maintenance_turn& one);
  void do_maintenance();
  void end_maintenance_step();
  /// Lets the pipelines launch again, and posts maintenance_over.
  void serve_again();
  void drop_maintenance(const error& reason);
  using regions = rank_results<std::shared_ptr<registered_region>>;
  /// Registers \p made with all ranks: the second half of a registration.
  void enroll(const std::shared_ptr<regions>& made, std::size_t size_bytes,
              std::shared_ptr<registration_promise> reply);
  void add_registered(std::shared_ptr<registered_pool> pool);
  /// Registers memory of a world over processes again, once all processes register memory of the same size.
  void register_again(const std::shared_ptr<registered_pool>& pool);
  [[nodiscard]] std::uint64_t next_restored_registration() const;
  /// A suspension of the world.
  struct suspension {
    bool is_in_force = false; ///< All ranks have released their memory.
    bool is_to_end = false;
    std::vector<std::shared_ptr<resumption_answer>> waiting{}; ///< Answered when it has ended.
  };
  /// Starts the second half of the suspension when the first half has ended.
  void end_suspension();

  [[nodiscard]] error objection_to(const capture_request& asked) const;
  [[nodiscard]] nanoseconds patience_of(const captured_plan& plan) const;
  /// Captures \p plan for the present epoch. \p tell is called on another thread with errc::none or the failure, and
  /// with the duration. Ranks of other processes must ask for the same capture within \p wait_for_peers.
  void capture_now(const std::shared_ptr<captured_plan>& plan, nanoseconds wait_for_peers,
                   std::function<void(const error&, nanoseconds)> tell);
  /// Returns a function that waits for a session's end, at most \p limit, and calls \p tell.
  [[nodiscard]] std::function<void(const std::shared_ptr<capture_session>&)>
  watch_for(nanoseconds limit, std::function<void(const error&, nanoseconds)> tell) const;
  void recapture_plans();
  /// Drops \p plan, which has streams of ranks that have left. Returns the error for its replays.
  error drop_plan(captured_plan& plan);

  void restored_registrations_are_back();
  void on_restored(const restored_report& one);
  /// Announces the restored parts if none is under way.
  void announce_restored();
  /// Adds the fields that world_state does not know.
  void complete(world_event& event) const;

  world_plan plan_; ///< Its locals and size are those of the present epoch, or of the next one during a rebuild.
  std::vector<std::size_t> places_; ///< Places of the plan's locals.
  const std::uint64_t number_;      ///< The number of this world within the process (world_stamp).
  world_state state_;
  std::shared_ptr<request_gate> gate_;                    ///< Shared with the clients, and may outlive the world.
  std::vector<std::shared_ptr<collective_state>> states_; ///< States of the ranks' actors, indexed by place.
  std::shared_ptr<world_mailbox> mail_;
  world_shell& shell_;

  spares spares_; ///< Spare streams per local device; empty if the world never forms beside hanging operations.

  std::set<std::size_t> ended_;       ///< Places whose actors are replaced in the next epoch.
  std::map<std::size_t, error> lost_; ///< Places whose ranks have left, with the error for requests to them.
  std::shared_ptr<const std::vector<rank_context>> contexts_;
  pipelines pipelines_;
  pipelines failed_;                                ///< The pipelines of retired_ that were retired last.
  pipelines retired_;                               ///< Pipelines of failed epochs whose abort has not been started.
  std::deque<std::deque<maintenance>> maintenance_; ///< Maintenance that is due: pieces that have one hold.
  std::map<std::uint64_t, std::deque<maintenance>> asked_; ///< Maintenance that waits for its turn, by number.
  std::uint64_t maintenance_asked_ = 0;
  bool has_newcomers_ = false;
  std::shared_ptr<suspension> suspended_; ///< Set from the request until requests are served again.
  std::vector<std::shared_ptr<registered_pool>> registered_;
  /// Memory of a world over processes that is not registered because a process that has joined has not registered any.
  std::vector<std::shared_ptr<registered_pool>> unregistered_;
  const std::shared_ptr<plan_directory> plans_ = std::make_shared<plan_directory>(); ///< Plans that have names.
  std::vector<std::weak_ptr<captured_plan>> captured_; ///< Plans to capture again in the next epoch.
  std::uint64_t unnamed_captures_ = 0;                 ///< In a world over processes.
  std::shared_ptr<resume_log> log_;                    ///< Set if this process keeps the order.
  std::shared_ptr<const resume_points> told_points_;   ///< From the controller, for the present epoch.
  std::shared_ptr<commit_record> commits_;             ///< Those of the latest epoch, if a controller forms it.
  std::shared_ptr<world_order> order_;                 ///< Between two epochs that of no ranks.
  bool is_order_over_ = false;                 ///< Whether the controller has closed the order to stop the world.
  std::shared_ptr<latch> closed_;              ///< Opens when the order releases no more operations.
  std::shared_ptr<latch> quiet_;               ///< Opens when the sub-worlds are idle. May be null.
  std::shared_ptr<const fault_report> report_; ///< Attached to the next event that has a reason.
  epoch reported_{0};                          ///< The latest epoch for which a report was taken.
  epoch first_{};                              ///< The epoch in which it was ready first; 0: not yet.
  restoration restored_;                       ///< Parts restored since the last fault.
  /// Set while a forming repeats registrations: the begin and end of each at each rank.
  std::shared_ptr<rank_results<std::vector<std::pair<time_point, time_point>>>> registering_;
};

} // namespace troupe
