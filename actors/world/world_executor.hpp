/// Executes the decisions of world_state: forms the ranks, opens and closes them for requests, opens the order, aborts
/// and releases. It does not use CAF, so the simulator runs the same code.
#pragma once

#include <troupe/actors/caf/requests.hpp>
#include <troupe/actors/rank/collective_state.hpp>
#include <troupe/actors/world/executor/captured_plans.hpp>
#include <troupe/actors/world/executor/executor_context.hpp>
#include <troupe/actors/world/executor/fault_reporter.hpp>
#include <troupe/actors/world/executor/forming.hpp>
#include <troupe/actors/world/executor/local_ranks.hpp>
#include <troupe/actors/world/executor/order_hand_over.hpp>
#include <troupe/actors/world/executor/prepared_epoch.hpp>
#include <troupe/actors/world/executor/rank_places.hpp>
#include <troupe/actors/world/executor/registered_memory.hpp>
#include <troupe/actors/world/executor/restored_parts.hpp>
#include <troupe/actors/world/executor/world_maintenance.hpp>
#include <troupe/actors/world/request_gate.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/actors/world/world_notes.hpp>
#include <troupe/actors/world/world_plan.hpp>
#include <troupe/actors/world/world_shell.hpp>
#include <troupe/actors/world/world_state.hpp>
#include <troupe/collectives/order/world_order.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/poller/latch.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// Passes events to world_state and executes the returned effects. Work that may block runs in helpers (BLK-1). Parts
/// own what lives longer than an epoch: world_maintenance, registered_memory and captured_plans; what a planned change
/// needs between two epochs: prepared_epoch and order_hand_over; and what is known of a fault: fault_reporter.
/// Threads: gate() from any; all other calls one at a time.
class world_executor : private executor_port {
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
  void sub_world_is_back(restored_part one) { restored_.sub_world_is_back(std::move(one)); }
  void stop();
  /// Ends the world at once, because no further calls will follow: steps that would wait for reports are done
  /// immediately.
  void kill(const error& why);
  /// Releases everything, after leave() or kill().
  void let_go();

  // Each perform() executes one kind of client request.
  void perform(const registration_request& asked, std::shared_ptr<registration_promise> reply) {
    registered_.perform(asked, std::move(reply));
  }
  void perform(const suspension_request& asked, std::shared_ptr<suspension_answer> reply) {
    maintenance_.suspend(asked, std::move(reply));
  }
  void perform(const resumption_request&, std::shared_ptr<resumption_answer> reply) {
    maintenance_.resume(std::move(reply));
  }
  void perform(capture_request asked, const std::shared_ptr<capture_answer>& reply) {
    plans_.perform(std::move(asked), reply);
  }
  void perform(const leave_request& asked, const std::shared_ptr<leave_answer>& reply);
  void perform(const credit_request& asked, const std::shared_ptr<credit_answer>& reply);
  /// Queues \p work for a time when no operation is in flight. Requires that objection_to_maintenance() is errc::none.
  void maintain(maintenance work) { maintenance_.ask(std::move(work)); }
  [[nodiscard]] error objection_to_maintenance(epoch meant_for) const { return maintenance_.objection(meant_for); }
  [[nodiscard]] error objection_to_maintenance() const { return maintenance_.objection(); }

  [[nodiscard]] request_gate& gate() noexcept { return *gate_; }
  /// Returns the order of the present epoch; never null.
  [[nodiscard]] const std::shared_ptr<world_order>& order() const noexcept { return now_.order; }
  /// Returns whether the present epoch, in a world over processes, has a process that the previous one had not.
  [[nodiscard]] bool has_newcomers() const noexcept { return has_newcomers_; }
  [[nodiscard]] epoch current_epoch() const noexcept { return state_.current_epoch(); }
  /// Returns the plan with the ranks that the world has now.
  [[nodiscard]] const world_plan& plan() const noexcept { return plan_; }
  /// Returns the event that would be announced now, without reports.
  [[nodiscard]] world_event event() const;

private:
  using pipelines = std::vector<std::shared_ptr<rank_pipeline>>;

  void carry_out(const world_effects& effects) override;
  void tell(member_report what) const;
  void announce() override { announce(state_.event()); }
  void publish() override;
  void on_every_rank(const char* doing, nanoseconds deadline, rank_report::kind report, const rank_work& work) override;
  void on_each(const pipelines& all, const char* doing, nanoseconds deadline, rank_report::kind report,
               const rank_work& work) override;
  /// Posts \p report for the local ranks whose pipelines could not be created, because they have no work to report on.
  void report_for_uncreated(rank_report::kind report);

  void on_report(rank_report& one);
  void follow(const controller_directive& from);
  /// Applies the process's rank and id for the epoch that is to form.
  void take_rank(const formation_directive& directive);
  void form(const world_effect::form& how);
  void hold();
  [[nodiscard]] rank_work forming(const world_effect::form& how);
  [[nodiscard]] std::vector<std::shared_ptr<communicator>> make_communicators(const world_effect::form& how);
  /// Removes \p what.ranks, given by their present numbers, from the next epoch.
  void lose(const world_effect::lose& what);
  void adopt(bool continues);
  /// Makes the ranks' actors admit requests to the present pipelines, which they ask of \p through.
  void open_places(const std::shared_ptr<world_order>& through);
  /// Handles that an order of a former epoch has passed on what it held: clients ask the present one.
  void end_hand_over();
  [[nodiscard]] std::shared_ptr<world_order> open_order();
  /// Returns a latch that opens when the order releases no more operations; null if nothing needs to be waited for.
  std::shared_ptr<latch> close_order(const error& reason);
  void close_gates(const error& reason);
  void abort();
  void drain();
  void retire();
  /// Publishes \p event on the world's status, whose listeners are the subscribers.
  void announce(world_event event);
  /// Adds the fields that world_state does not know.
  void complete(world_event& event) const;
  /// Announces that a request's deadline has passed. This alone is not a fault.
  void announce_late(const rank_report& one);

  /// Where the lanes stood when the previous epoch ended: from the log, if this process keeps the order, or from the
  /// controller.
  struct commit_sources {
    std::shared_ptr<resume_log> log{};
    std::shared_ptr<const resume_points> told{}; ///< For the present epoch.
    std::shared_ptr<commit_record> record{};     ///< Of the latest epoch, if a controller forms it.
  };

  world_plan plan_; ///< Its locals and size are those of the present epoch, or of the next one during a rebuild.
  const std::uint64_t number_; ///< The number of this world within the process (world_stamp).
  world_state state_;
  std::shared_ptr<request_gate> gate_; ///< Shared with the clients, and may outlive the world.
  const std::shared_ptr<world_mailbox> mail_;
  world_shell& shell_;
  rank_places places_;
  spare_reserve spares_; ///< Empty if the world never forms beside hanging operations.
  std::shared_ptr<const std::vector<rank_context>> contexts_;
  formed_epoch now_;
  pipelines failed_;  ///< The pipelines of retired_ that were retired last.
  pipelines retired_; ///< Pipelines of failed epochs whose abort has not been started.
  bool has_newcomers_ = false;
  commit_sources commits_;
  bool is_order_over_ = false;   ///< Whether the controller has closed the order to stop the world.
  std::shared_ptr<latch> quiet_; ///< Opens when the sub-worlds are idle. May be null.
  epoch first_{};                ///< The epoch in which it was ready first; 0: not yet.
  prepared_epoch prepared_;
  order_hand_over hand_over_;
  fault_reporter faults_;
  restored_parts restored_; ///< Since the last fault.
  world_maintenance maintenance_;
  registered_memory registered_;
  captured_plans plans_;
};

} // namespace troupe
