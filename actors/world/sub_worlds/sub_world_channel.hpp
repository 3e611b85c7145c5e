/// Lets a world over processes decide about the worlds that are split off it, as a controller does about the whole.
#pragma once

#include <troupe/actors/world/controller_channel.hpp>
#include <troupe/actors/world/world_executor.hpp>
#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/operation/rank_group.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace troupe {

/// What the parent has prepared for one epoch of a sub-world.
struct sub_world_epoch {
  troupe::epoch of{};                                   ///< The parent's, which is also that of the sub-world.
  rank self_in_parent{};                                ///< The local rank.
  std::uint64_t number = 0;                             ///< The controller's number of the sub-world, in this epoch.
  std::shared_ptr<world_order> order{};                 ///< The parent's.
  std::shared_ptr<troupe::communicator> communicator{}; ///< The local rank's, initialised.
};

/// Returns what other ranks are told of a rank that has ended its part in a sub-world before its epoch was ready there.
[[nodiscard]] error stopped_before_its_epoch();

/// The controller of a sub-world in this process is its parent: only the parent can give it communicators, and an order
/// that all processes share. A fault of the sub-world is therefore one of the whole world.
/// Threads: prepare(), quiesce() and epoch_ended() from the parent's actor, the rest as controller_channel.
class sub_world_channel final : public controller_channel {
public:
  /// Aborts a communicator that the sub-world has not taken. Must neither block nor throw.
  using abort_unused = std::function<void(std::shared_ptr<communicator>)>;

  sub_world_channel(std::shared_ptr<world_mailbox> parent, rank_group group, abort_unused abort)
    : parent_{std::move(parent)}, group_{std::move(group)}, abort_{std::move(abort)} {}
  ~sub_world_channel() override { drop_communicator(); }

  /// Call before the sub-world is directed to form \p next.
  void prepare(sub_world_epoch next);
  /// Keeps \p until_idle until the sub-world has no operation in flight or its epoch has ended; drops it if it does not
  /// serve. Call before it is directed to quiesce.
  void quiesce(std::shared_ptr<void> until_idle);
  /// Drops what quiesce() keeps, because the epoch has failed.
  void epoch_ended();

  /// Leaves the order of the prepared epoch, if the sub-world has ended before it could open it. Call it when the
  /// sub-world has ended.
  void ended();

  /// Returns the commits that the sub-world knows, after its epoch has ended (commit_record::seal()).
  [[nodiscard]] told_commits told();

  void tell(member_report what) override;
  void begins(std::shared_ptr<commit_record> commits) override;
  [[nodiscard]] std::shared_ptr<world_order> open_order(std::shared_ptr<rank_pipeline> pipeline,
                                                        std::shared_ptr<exported_memory> exported) override;
  [[nodiscard]] std::shared_ptr<communicator> take_communicator() override;

private:
  void drop_communicator();

  const std::shared_ptr<world_mailbox> parent_;
  const rank_group group_;
  const abort_unused abort_;
  mutable std::mutex mutex_;
  sub_world_epoch now_{};
  bool is_open_ = false; ///< The sub-world has opened its order in that epoch.
  epoch serving_{};      ///< The epoch in which it serves; 0: it does not.
  std::shared_ptr<void> until_idle_{};
  std::shared_ptr<commit_record> commits_{};
};

} // namespace troupe
