/// Carries out what a world decides: forms its ranks, opens and closes their gates, keeps its order, aborts and
/// releases. Without CAF, so that the simulator runs the same.
#pragma once

#include <troupe/actors/caf/requests.hpp>
#include <troupe/actors/rank/collective_state.hpp>
#include <troupe/actors/world/maintenance.hpp>
#include <troupe/actors/world/request_gate.hpp>
#include <troupe/actors/world/restored_registrations.hpp>
#include <troupe/actors/world/world_notes.hpp>
#include <troupe/actors/world/world_plan.hpp>
#include <troupe/actors/world/world_registration.hpp>
#include <troupe/actors/world/world_shell.hpp>
#include <troupe/actors/world/world_state.hpp>
#include <troupe/actors/world/world_suspension.hpp>
#include <troupe/collectives/pipeline/fault_report.hpp>
#include <troupe/completion/poller/latch.hpp>
#include <troupe/device/spare_streams.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace troupe {

/// Shell around world_state: carries out its effects. Everything that may block runs in helpers (BLK-1).
/// Threads: entrance() is for any; all else is called in turns, one at a time.
class world_executor {
public:
  /// \p states are what the local ranks' actors decide by, in the order of \p plan's locals: their places, which stay
  /// as they are when ranks leave. \p shell outlives it.
  world_executor(world_plan plan, std::vector<std::shared_ptr<collective_state>> states,
                 std::shared_ptr<world_mailbox> mail, world_shell& shell);

  void begin();
  void on(world_note note);
  /// The actor at \p place is no more.
  void on_rank_ended(std::size_t place, const std::string& reason);
  /// Or lost: a world that was split off this one has ended a recovery of its own.
  void sub_world_is_back(restored_part one);
  void stop();
  /// Nobody gives it turns any more: what would have been done in order is done at once.
  void kill(const error& why);
  /// Lets go of everything, after leave() or kill().
  void let_go();

  void register_memory(const registration_request& asked, std::shared_ptr<registration_promise> reply);
  void suspend(const suspension_request& asked, std::shared_ptr<suspension_answer> reply);
  void resume(std::shared_ptr<resumption_answer> reply);
  void capture(capture_request asked, std::shared_ptr<capture_answer> reply);
  void give_credit(const credit_request& asked, std::shared_ptr<credit_answer> reply);
  /// \p work gets its turn when nothing is in flight. Only where objection_to_maintenance() is errc::none.
  void maintain(maintenance work);
  [[nodiscard]] error objection_to_maintenance(epoch meant_for) const {
    return state_.maintenance_objection(meant_for);
  }
  [[nodiscard]] error objection_to_maintenance() const { return objection_to_maintenance(state_.current_epoch()); }

  [[nodiscard]] request_gate& entrance() noexcept { return entrance_; }
  /// With the ranks that the world has now.
  [[nodiscard]] const world_plan& plan() const noexcept { return plan_; }
  /// As it would be announced now, but for reports.
  [[nodiscard]] world_event event() const;

private:
  using pipelines = std::vector<std::shared_ptr<rank_pipeline>>;
  using step = std::function<void(rank_pipeline&)>;

  void carry_out(const world_effects& effects);
  void follow(const guidance& from);
  /// The process's place in the epoch that is to form.
  void take_seat(const formation_order& order);
  using communicators = std::vector<std::shared_ptr<communicator>>;

  void form(const world_effect::form& how);
  [[nodiscard]] step forming(const world_effect::form& how);
  using spares = std::map<std::shared_ptr<device>, std::shared_ptr<spare_streams>>;
  /// Before \p of forms beside what hangs on its device.
  static void give_back_spares(const spares& all, const rank_pipeline& of);
  /// Once nothing of ours hangs on \p of's device. May wait for the device.
  static void keep_spares(const spares& all, const rank_pipeline& of);
  [[nodiscard]] communicators make_ends() const;
  [[nodiscard]] communicators make_ends(const world_effect::form& how);
  /// Made of the communicators that have failed. Errors: unsupported, communicator_failed.
  [[nodiscard]] communicators make_ends_of_failed(const world_effect::form& how, const pipelines& failed) const;
  /// The present numbers of \p what.ranks are not in the next epoch.
  void lose(const world_effect::lose& what);
  /// Whom recovery_policy::shrink leaves out after \p why.
  [[nodiscard]] std::vector<rank> blamed_for(const error& why) const;
  void adopt();
  void close_order(const error& reason);
  void close_gates(const error& reason);
  void drain();
  void announce(world_event event);
  /// Of the first failure of an epoch: taken before the ranks are failed for it.
  void take_report(epoch of, const error& why);
  /// A request's deadline has passed; nothing has failed, so far.
  void tell_of_late(const rank_report& one);
  /// Tells the entrance what holds now.
  void publish();
  void retire();
  /// Runs \p work on every local rank's pipeline in helpers, and posts each end.
  void on_every_rank(const char* doing, nanoseconds deadline, rank_report::kind report, const step& work);
  void on_each(const pipelines& all, const char* doing, nanoseconds deadline, rank_report::kind report,
               const step& work);
  void run_on_each(const pipelines& all, const char* doing, nanoseconds deadline, const step& work,
                   const std::function<void(rank, epoch, error)>& ended);
  /// Posts \p report of the local ranks whose pipelines could not even be made: they have nothing to do.
  void speak_for_unmade(rank_report::kind report);

  void hold();
  void do_maintenance();
  void drop_maintenance(const error& reason);
  void enroll(const std::shared_ptr<world_registration>& made);
  /// The second half of \p made's suspension, once the first is over.
  void resume(world_suspension& made);

  [[nodiscard]] error objection_to(const capture_request& asked) const;
  /// Captures \p plan for the present epoch; \p tell is called in a helper, with errc::none or why not, and how long it
  /// took.
  void capture_now(const std::shared_ptr<captured_plan>& plan, std::function<void(const error&, nanoseconds)> tell);
  void recapture_plans();
  /// \p plan has streams of ranks that have left. Returns what its replays are told.
  error drop_plan(captured_plan& plan);

  void restored_registrations_are_back();
  void on_restored(const restored_report& one);
  /// By an event, if nothing is under way.
  void tell_of_restored();
  /// With what the state does not know.
  void complete(world_event& event) const;

  /// The present epoch's pipelines are put aside: each will be reported as released.
  void expect_release();
  void note_release(const rank_report& one);
  /// There will be no next epoch.
  void end_retries();

  world_plan plan_; ///< Its locals and size are those of the present epoch, or of the next while it is rebuilt.
  std::vector<std::size_t> places_; ///< Of the plan's locals.
  const std::uint64_t number_;      ///< Of this world among all of the process (world_stamp).
  world_state state_;
  request_gate entrance_;
  std::vector<std::shared_ptr<collective_state>> states_; ///< By place.
  std::shared_ptr<world_mailbox> mail_;
  world_shell& shell_;

  spares spares_; ///< Of each local device, where the world may form beside what hangs.

  std::set<std::size_t> ended_;       ///< Places whose actors are replaced in the next epoch.
  std::map<std::size_t, error> lost_; ///< Places whose ranks have left, and what is said there.
  std::shared_ptr<const std::vector<seat>> seats_;
  pipelines pipelines_;
  pipelines failed_;  ///< Those of retired_ that were put aside last.
  pipelines retired_; ///< Of failed epochs, and not told to abort.
  /// Of an epoch that was put aside.
  struct unreleased {
    std::size_t ranks = 0;
    bool safely = true; ///< No abort has been given up.
  };
  std::map<epoch, unreleased> unreleased_;
  std::deque<maintenance> maintenance_;
  std::shared_ptr<world_suspension> suspended_; ///< From when it was asked for until requests are served again.
  std::vector<std::shared_ptr<registered_pool>> registered_;
  std::vector<std::weak_ptr<captured_plan>> captured_; ///< To be captured again in the next epoch.
  std::shared_ptr<ordered_world> order_;               ///< Where all ranks live in this process, once they have formed.
  std::shared_ptr<distributed_order> guided_order_;    ///< Where a controller keeps it.
  std::shared_ptr<latch> held_;                        ///< Opens when every pipeline holds what comes.
  std::shared_ptr<latch> closed_;                      ///< Opens when nothing more comes out of order_.
  std::shared_ptr<const fault_report> report_;         ///< To go with the next event that has a reason.
  epoch reported_{0};                                  ///< The latest epoch that a report was taken of.
  epoch first_{};                                      ///< In which it was ready first; 0: it has not been yet.
  restoration restored_;                               ///< Since the last fault.
  std::shared_ptr<restored_registrations> registering_; ///< Of the forming that is under way, where there are some.
};

} // namespace troupe
