/// Creates and supervises the sub-worlds that are split off one world. They end before that world.
#pragma once

#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/actors/world/sub_worlds/sub_world_channel.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/actors/world/world_executor.hpp>
#include <troupe/actors/world/world_plan.hpp>
#include <troupe/collectives/operation/rank_group.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// Creates the communicators of all groups. Threads: take_part() from helpers, the rest from the world's actor.
class world_split {
public:
  /// \p groups must have been checked for \p world_size.
  world_split(std::vector<rank_group> groups, int world_size);

  /// Takes part in every round for the rank of \p parent. Blocks until all ranks of the world take part.
  void take_part(rank_pipeline& parent);

  /// Returns the communicator of the one local rank in group \p index; null if the rank is not in the group.
  [[nodiscard]] std::shared_ptr<communicator> take_communicator(std::size_t index);
  /// Returns the plan for group \p index with its communicators, or nullopt if none of its ranks live here.
  [[nodiscard]] std::optional<world_plan> plan_of(std::size_t index, const world_plan& parent);
  /// Aborts, in helpers, all communicators that have been created and not handed out, and those still to be created.
  void abandon(deadline_pool& helpers, nanoseconds deadline);

  [[nodiscard]] const std::vector<rank_group>& groups() const noexcept { return groups_; }

private:
  void keep(std::size_t group, rank self, std::shared_ptr<communicator> made);

  std::vector<rank_group> groups_;
  std::vector<std::vector<std::size_t>> rounds_;

  std::mutex mutex_;
  bool abandoned_ = false;
  std::vector<std::map<rank, std::shared_ptr<communicator>>> made_; ///< Communicators per group, by rank in the parent.
};

/// A split of a world over processes at its place in the order.
struct ordered_split {
  epoch of{};
  std::shared_ptr<world_order> order{}; ///< The parent's; null: this process orders the requests by itself.
  std::vector<opened_world> opened{};   ///< The sub-worlds of the local rank at the controller.
};

/// A sub-world in this process, as its parent reaches it: an actor, or a world of the simulator.
class sub_world_access {
public:
  sub_world_access() = default;
  sub_world_access(const sub_world_access&) = delete;
  sub_world_access& operator=(const sub_world_access&) = delete;
  virtual ~sub_world_access() = default;

  /// Passes on a decision of the parent, in the order of the calls.
  virtual void tell(controller_directive what) = 0;
  virtual void stop() = 0;
};

/// Starts a sub-world of \p plan, which reports its events to the parent as sub_worlds_report::child \p name, and adds
/// to \p made what its clients need to reach it.
using sub_world_spawner =
    std::function<std::unique_ptr<sub_world_access>(std::uint64_t name, world_plan plan, sub_world& made)>;

/// Makes, observes and stops the sub-worlds of a world. Those of a world over processes have its epochs: they fail with
/// it, and are given new communicators in its next epoch. It does not use CAF, so the simulator runs the same code.
/// Threads: the parent's actor. Events of sub-worlds arrive there as sub_worlds_report.
class sub_worlds {
public:
  /// \p parent must outlive it.
  sub_worlds(world_executor& parent, std::shared_ptr<world_mailbox> mail, sub_world_spawner spawn)
    : parent_{parent}, mail_{std::move(mail)}, spawn_{std::move(spawn)} {}

  /// Splits the parent, and answers when each sub-world has become ready or failed. If one fails, all are stopped.
  void perform(split_request asked, const std::shared_ptr<split_answer>& reply);
  /// Stops the sub-worlds, then the parent.
  void stop();
  void stop_all();
  void heard(const sub_worlds_report& report);

  // The calls of world_shell that concern sub-worlds.
  void epoch_ended(const error& why, bool for_good);
  [[nodiscard]] std::shared_ptr<latch> quiesce(const error& why);
  [[nodiscard]] bool stop_as_told(const stop_directive& told);
  void formed_again();

private:
  /// A split of a world over processes that was made, and is repeated in each epoch.
  struct split_record {
    std::uint64_t number = 0;
    std::vector<rank_group> groups{};
    int world_size = 0;               ///< The size of the parent.
    bool had_part = false;            ///< The local rank is in a group. Its sub-worlds may have ended since.
    bool has_newcomers = false;       ///< Since it was made last.
    std::vector<told_commits> told{}; ///< For each group the commits that its sub-world knows here.
  };
  /// The sub-worlds of one split until each has become ready or failed.
  struct pending_split {
    std::shared_ptr<split_answer> reply;
    split_reply result;
    std::vector<std::uint64_t> children{}; ///< child::name
    std::size_t unsettled = 0;
    error failure;
  };
  struct child {
    std::uint64_t name;
    std::unique_ptr<sub_world_access> access;
    std::string group;
    std::shared_ptr<pending_split> unsettled_split; ///< Set until it has become ready or failed.
    epoch back_in{};                                ///< The latest epoch in which it has recovered.
    std::shared_ptr<sub_world_channel> channel{};   ///< Set if the parent is over processes, as the two below.
    std::uint64_t split = 0;                        ///< split_record::number.
    std::size_t index = 0;                          ///< The index of its group in the split.
  };

  using split_end = std::function<void(const error& failure, world_split& made, const ordered_split& place)>;
  /// Makes the communicators of \p groups, then calls \p ended. \p restores: see maintenance.
  void split(std::vector<rank_group> groups, std::vector<told_commits> told, bool restores, split_end ended);
  /// Starts the sub-worlds of \p made.
  void raise(world_split& made, const ordered_split& place, std::shared_ptr<split_answer> reply);
  /// Returns the splits to repeat in an epoch of \p world_size ranks. Those that cannot be repeated end for good.
  [[nodiscard]] std::vector<split_record> take_stock(int world_size, bool has_newcomers);
  /// Orders the sub-worlds of split \p number to form with the communicators of \p made.
  void restore(std::uint64_t number, world_split& made, const ordered_split& place);
  /// Orders a child to form with what the parent has made for it.
  void order_forming(const child& to, const rank_group& group, std::shared_ptr<communicator> made,
                     const ordered_split& place, bool has_newcomers);
  /// Returns what \p report means for the parent's events: a sub-world has recovered from a fault, or has failed for
  /// good.
  [[nodiscard]] std::optional<restored_part> restored_by(const sub_worlds_report& report);
  void settle(const sub_worlds_report& report);

  world_executor& parent_;
  const std::shared_ptr<world_mailbox> mail_; ///< The parent's.
  const sub_world_spawner spawn_;
  bool is_stopping_ = false;
  std::uint64_t next_ = 0;
  std::vector<child> living_;
  std::vector<split_record> splits_; ///< Only over processes: the splits, in the order in which they were made.
  std::uint64_t last_split_ = 0;
};

} // namespace troupe
