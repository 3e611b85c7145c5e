/// Defines the state that all handles of one world share. Internal.
#pragma once

#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/actors/world/rank_directory.hpp>
#include <troupe/actors/world/world_plan.hpp>
#include <troupe/collectives/pipeline/staging/staging_stock.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/process_mark.hpp>
#include <troupe/runtime/metrics/world_history.hpp>
#include <troupe/runtime/world.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

/// Holds the worlds of one runtime. The runtime stops them and then removes their actors' handles. Threads: any.
class world_registry : public std::enable_shared_from_this<world_registry> {
public:
  using core_ptr = std::shared_ptr<world::core>;

  void add(core_ptr one);
  /// Returns the pointer that users' handles hold. When its last copy is destroyed, the world is asked to stop, unless
  /// its actors are held elsewhere. \p parent is held until then. Call once per world.
  [[nodiscard]] core_ptr counted(core_ptr one, core_ptr parent = {});
  /// Waits until only a few of the worlds that were asked to stop are still ending. Does not throw; each end has
  /// deadlines.
  void await_ends() const;
  [[nodiscard]] std::vector<core_ptr> all() const;
  /// Stops sending messages to worlds, because the actor system ends.
  void close();

private:
  void let_go(const core_ptr& one) noexcept;
  /// Asks worlds without handles to stop. Returns those that have stopped.
  [[nodiscard]] std::vector<core_ptr> sweep();

  const process_mark made_; ///< A forked process has no threads that could end a world.
  mutable std::mutex mutex_;
  std::vector<core_ptr> worlds_;
  std::vector<core_ptr> dropped_; ///< The elements of worlds_ that have no handles.
  bool closed_ = false;
};

/// Returns the promise for both answers of one request to \p part_count ranks, and their futures.
[[nodiscard]] std::pair<reply_promise, overlapped> make_overlapped(std::size_t part_count);

/// The use of the pools of a world's devices, which ends with the world. Threads: any.
class pool_uses {
public:
  void add(memory_pool& pool) {
    auto use = pool.add_user();
    const std::lock_guard lock{mutex_};
    held_.push_back(std::move(use));
  }
  /// A pool without another user returns its unused memory soon, on another thread.
  void end() noexcept {
    std::vector<std::shared_ptr<void>> ended;
    const std::lock_guard lock{mutex_};
    ended.swap(held_);
  }

private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<void>> held_;
};

class world::core {
public:
  std::shared_ptr<world_status> status;
  const process_mark made;
  world_inner_handle actor;
  /// Returns the world's actor. Errors: unsupported (a fork has no thread that could answer).
  [[nodiscard]] const world_inner_handle& own_actor() const {
    if (made.is_inherited()) throw exception{used_in_fork("this world")};
    return actor;
  }
  /// Returns the world's status. Errors: unsupported (a fork: a thread of the parent may have held its lock).
  [[nodiscard]] world_status& own_status() const {
    if (made.is_inherited()) throw exception{used_in_fork("this world")};
    return *status;
  }
  /// Whether something other than a handle may hold the world's actors.
  std::atomic<bool> is_handed_out{false};
  bool is_split_off = false;
  std::atomic<bool> is_told_to_stop{false};
  /// Returns whether its actors are held only here and by each other.
  [[nodiscard]] bool is_alone() const;
  /// Returns the index of rank \p target in the vectors below. \p now is the state in which the rank has that number.
  /// Errors: invalid_argument.
  [[nodiscard]] std::size_t place_of(rank target, const world_event& now) const;
  [[nodiscard]] std::size_t place_of(rank target) const {
    return own_status().peek([&](const world_event& now) { return place_of(target, now); });
  }

  std::shared_ptr<rank_directory> ranks;           ///< The ranks' actors, indexed by place.
  std::vector<rank> local_ranks;                   ///< The local ranks in the first epoch, indexed by place.
  std::vector<std::shared_ptr<memory_pool>> pools; ///< The ranks' memory pools, indexed by place.
  std::shared_ptr<pool_uses> uses = std::make_shared<pool_uses>();
  world_deadlines deadlines;
  troupe::ordering ordering = troupe::ordering::agreed;
  std::mutex registered_guard;
  std::shared_ptr<registered_pool> registered; ///< Registered memory; null if there is none.
  /// Releases the registered memory, and what the pools keep if no other world uses them. For a world that has stopped.
  void give_memory_back() noexcept;
  std::weak_ptr<world_registry> registry;
  std::shared_ptr<const troupe::capabilities> able;
  std::shared_ptr<staging_stock> staging;
  std::shared_ptr<exported_memory> exported;
  std::shared_ptr<function_directory> functions;
  std::shared_ptr<const admission_quota> pending;
  std::shared_ptr<world_history> history = std::make_shared<world_history>();
  std::chrono::system_clock::time_point formed = std::chrono::system_clock::now();
  /// Makes `history` count events. Call it before the first event, or as early as possible.
  void count_events() const {
    status->listen([counted = history](const world_event& event) { counted->hear(event); });
  }
};

/// Returns the state that the handle \p where shares.
[[nodiscard]] inline world::core& core_of(const world& where) noexcept {
  return *where.core_;
}

} // namespace troupe
