/// Runs the maintenance of a world: work for which no operation may be in flight, and suspensions.
#pragma once

#include <troupe/actors/caf/requests.hpp>
#include <troupe/actors/world/executor/executor_context.hpp>
#include <troupe/collectives/operation/rank_group.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

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
  rank_work step{};
  /// Called once in the world's actor, with errc::none when all ranks have finished, else with the reason why the work
  /// was not done.
  std::function<void(const error&)> done{};
};

/// The maintenance of one world: asked for, then held for its turn in the order, then done step by step. It is dropped,
/// and answered, when its epoch ends. Threads: one at a time, as the executor.
class world_maintenance {
public:
  explicit world_maintenance(const executor_context& of) : of_{of} {}

  /// Returns why no maintenance can be asked for; errc::none if it can.
  [[nodiscard]] error objection(epoch meant_for) const { return of_.state.maintenance_objection(meant_for); }
  [[nodiscard]] error objection() const { return objection(of_.state.current_epoch()); }
  /// Queues \p steps, which run one after the other when no operation is in flight. The turn is that of the first one.
  /// Requires that objection() is errc::none.
  void ask(std::deque<maintenance> steps);
  void ask(maintenance work);

  void suspend(const suspension_request& asked, std::shared_ptr<suspension_answer> reply);
  void resume(std::shared_ptr<resumption_answer> reply);
  /// Ends the suspension, if there is one, because the world stops.
  void end_suspension();
  /// Returns whether all ranks have released their memory.
  [[nodiscard]] bool is_suspended() const noexcept { return suspended_ && suspended_->is_in_force; }

  /// Handles a turn that has been granted or refused.
  void on_turn(maintenance_turn& one);
  /// Runs the next step of the work that is due (world_effect::maintain).
  void run();
  /// Ends the step that all ranks have done (world_effect::maintained).
  void end_step();
  /// Answers all maintenance with \p reason (world_effect::drop_maintenance).
  void drop(const error& reason);
  /// Forgets the restorations that wait for their turns, because their epoch has failed.
  void drop_restorations();

private:
  struct suspension {
    bool is_in_force = false; ///< All ranks have released their memory.
    bool is_to_end = false;
    std::vector<std::shared_ptr<resumption_answer>> waiting{}; ///< Answered when it has ended.
  };

  void let_launch() const;
  /// Lets the pipelines launch again, and posts maintenance_over.
  void serve_again();

  const executor_context of_;
  std::deque<std::deque<maintenance>> due_;                ///< Pieces that are due. The steps of each have one hold.
  std::map<std::uint64_t, std::deque<maintenance>> asked_; ///< Pieces that wait for their turns, by number.
  std::uint64_t last_number_ = 0;
  std::shared_ptr<suspension> suspended_; ///< Set from the request until requests are served again.
};

} // namespace troupe
