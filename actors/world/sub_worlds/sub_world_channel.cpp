#include <troupe/actors/world/sub_worlds/sub_world_channel.hpp>

#include <troupe/device/overloaded.hpp>

#include <utility>

namespace troupe {

error stopped_before_its_epoch() {
  return {.code = errc::stopping, .text = "it was stopped there before it was ready in this epoch"};
}

void sub_world_channel::drop_communicator() {
  if (auto unused = take_communicator()) abort_(std::move(unused));
}

void sub_world_channel::prepare(sub_world_epoch next) {
  drop_communicator();
  const std::lock_guard lock{mutex_};
  std::swap(now_, next); // the order of the epoch before is released without the lock
  is_open_ = false;
  serving_ = {};
}

void sub_world_channel::ended() {
  drop_communicator();
  std::unique_lock lock{mutex_};
  const auto order = std::exchange(now_.order, nullptr);
  const bool is_open = is_open_;
  const std::uint64_t number = now_.number;
  lock.unlock(); // the order may answer other requests of clients
  if (order && !is_open) order->decline_world(number, stopped_before_its_epoch());
}

void sub_world_channel::quiesce(std::shared_ptr<void> until_idle) {
  const std::lock_guard lock{mutex_};
  if (serving_ != epoch{}) until_idle_ = std::move(until_idle);
}

void sub_world_channel::epoch_ended() {
  std::shared_ptr<void> idle; // dropped after the lock is released, because it opens a latch
  const std::lock_guard lock{mutex_};
  serving_ = {};
  idle = std::exchange(until_idle_, nullptr);
}

void sub_world_channel::tell(member_report what) {
  std::shared_ptr<void> idle; // dropped after the lock is released, because it opens a latch
  const std::lock_guard lock{mutex_};
  const auto end = [&] {
    serving_ = {};
    idle = std::exchange(until_idle_, nullptr);
  };
  std::visit(overloaded{
                 [&](const formed_report& one) { serving_ = one.of; },
                 [&](failed_report& one) {
                   error why = std::move(one.why);
                   why.text = "sub-world '" + group_.name + "': " + why.text;
                   const bool names_member = why.rank && why.rank->value() >= 0 &&
                                             static_cast<std::size_t>(why.rank->value()) < group_.members.size();
                   why.rank =
                       names_member ? group_.members[static_cast<std::size_t>(why.rank->value())] : now_.self_in_parent;
                   parent_->post(rank_report{rank_report::kind::faulted, now_.self_in_parent, one.of, std::move(why)});
                   end();
                 },
                 [&](const drained_report&) { end(); }, [&](const leave_notice&) { end(); },
                 [](const auto&) {}, // only a controller has use for the others
             },
             what);
}

std::shared_ptr<world_order> sub_world_channel::open_order(std::shared_ptr<rank_pipeline> pipeline,
                                                           std::shared_ptr<exported_memory>) {
  std::unique_lock lock{mutex_};
  is_open_ = true;
  const auto order = now_.order;
  const std::uint64_t number = now_.number;
  lock.unlock(); // as in ended(): messages that have arrived early are delivered now
  return order->open_world(number, std::move(pipeline));
}

void sub_world_channel::begins(std::shared_ptr<commit_record> commits) {
  const std::lock_guard lock{mutex_};
  commits_ = std::move(commits);
}

told_commits sub_world_channel::told() {
  const std::lock_guard lock{mutex_};
  return commits_ ? commits_->seal() : told_commits{};
}

std::shared_ptr<communicator> sub_world_channel::take_communicator() {
  const std::lock_guard lock{mutex_};
  return std::exchange(now_.communicator, nullptr);
}

} // namespace troupe
