/// Keeps operations that a fault interrupted and that all clients marked retry_safe, and runs them again in the next
/// epoch.
#pragma once

#include <troupe/collectives/operation/retry_claim.hpp>
#include <troupe/collectives/order/lane.hpp>
#include <troupe/collectives/order/release_queue.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/identity.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe {

class retry_queue;

/// An operation that may be run again. Threads: the functions of retried_parts may be called from any thread, all
/// others only from the retry queue's tasks.
class retried_operation final : public retried_parts {
public:
  /// State of the operation.
  enum class stage : std::uint8_t {
    running,      ///< No part is lost.
    lost_in_part, ///< Some parts are lost; the outcome of others is not known yet.
    lost,         ///< All parts are lost or done, and none was answered.
    over,         ///< Answered, or replaced by a new run: each later outcome of a part is its answer.
  };

  [[nodiscard]] static std::shared_ptr<retried_operation>
  make(std::weak_ptr<retry_queue> queue, std::optional<lane> line, epoch formed_in, int world_size, std::size_t parts);
  retried_operation(std::weak_ptr<retry_queue> queue, std::optional<lane> line, epoch formed_in, int world_size,
                    std::size_t parts) noexcept;
  ~retried_operation() override;

  void keep(retryable_part one) noexcept override;
  /// True for a request to the world, which has one answer for all ranks.
  [[nodiscard]] bool is_kept_when_done() const noexcept override { return !line_; }
  void settled() noexcept override;

  [[nodiscard]] stage at() const noexcept;
  /// Returns the lane; nullopt for a request to the whole world.
  [[nodiscard]] const std::optional<lane>& line() const noexcept { return line_; }
  [[nodiscard]] epoch formed_in() const noexcept { return formed_in_; }
  [[nodiscard]] int world_size() const noexcept { return world_size_; }
  /// Returns whether a part may have run.
  [[nodiscard]] bool may_have_run() const noexcept;
  /// Returns the earliest deadline of its parts.
  [[nodiscard]] time_point deadline() const noexcept;
  template <class Visit>
  void visit(Visit visit) const {
    const std::lock_guard lock{mutex_};
    for (const retryable_part& one : kept_) visit(one);
  }
  /// Returns all kept parts. The operation is over then.
  [[nodiscard]] std::vector<retryable_part> take() noexcept;

  /// Makes the operation notify the retry queue also when it is over. Returns false if it is already over.
  [[nodiscard]] bool await() noexcept;
  [[nodiscard]] bool counted() const noexcept { return counted_; }
  void count() noexcept { counted_ = true; }

private:
  const std::weak_ptr<retry_queue> retry_queue_;
  const std::optional<lane> line_;
  const epoch formed_in_;
  const int world_size_;
  bool counted_ = false; ///< Included in the count of operations kept for another run.

  mutable std::mutex mutex_;
  std::size_t open_; ///< Parts without an outcome.
  bool over_ = false;
  bool any_lost_ = false;
  bool awaited_ = false;
  std::vector<retryable_part> kept_;
};

class arbiter;
class ordered_world;
class retried_operation;

/// One queue for all epochs of a world. It follows each operation that all participants marked retry_safe, from its
/// release to its answers. If a fault interrupts every part of an operation and no part was answered, the operation is
/// kept with its buffers and reply promises. In the next epoch it enters the order again without a new request.
///
/// Within a lane the old relative order is kept, and requests of the new epoch wait for the last kept operation of
/// their lane. Requests to the whole world keep their order among themselves in the same way. An operation that may
/// have been launched (unknown outcome) must not run while the work of its old epoch may still write to its results. It
/// waits until the pipelines of that epoch have released their devices. Operations behind it in its lane wait too;
/// other lanes continue. (docs/design/0030)
///
/// Threads: released(), end(), look_again() and counts() may be called from any thread, all other functions only in the
/// arbiter's tasks.
class retry_queue final : public std::enable_shared_from_this<retry_queue> {
public:
  /// Used by arbiter::open_retry_queue().
  explicit retry_queue(std::shared_ptr<arbiter> above);
  retry_queue(const retry_queue&) = delete;
  retry_queue& operator=(const retry_queue&) = delete;
  ~retry_queue();

  /// Called when every pipeline of epoch \p of has released its device. If \p safely is false, an abort was given up,
  /// and work of that epoch may still write at any time. Operations launched there are then answered, not run again.
  void released(epoch of, bool safely);
  /// Called when there will be no next epoch. All operations, also later ones, are answered with the fault that
  /// interrupted them.
  void end();
  /// Checks all operations again, because something may have changed.
  void look_again() noexcept;
  [[nodiscard]] retry_counts counts() const noexcept;

  // Called in the arbiter's tasks ------------------------------------------------------------------------------------
  /// Registers an operation whose \p parts are released to \p where, all marked retry_safe. \p line is its lane;
  /// nullopt for a request to the whole world.
  void enroll(ordered_world& where, std::optional<lane> line, released_operation& parts);
  /// Continues in \p next, the world's new epoch, which has not received any request yet.
  void continue_in(std::shared_ptr<ordered_world> next);
  /// Stops using \p gone, which is closed.
  void leave(const ordered_world& gone) noexcept;
  void expire(time_point now);
  [[nodiscard]] time_point next_due() const noexcept { return due_; }
  /// Returns the number of operations that wait for another epoch, or to be run in this one.
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_; }

private:
  using operation_list = std::deque<std::shared_ptr<retried_operation>>;

  void advance(time_point now);
  /// Tries to finish \p one, of which parts are lost. Returns whether it was run again (\p one is then its new run) or
  /// answered.
  [[nodiscard]] bool dispose(std::shared_ptr<retried_operation>& one, bool line_is_free, time_point now);
  void run_again(std::shared_ptr<retried_operation>& one, time_point now);
  void give_up(retried_operation& one, error instead = {});
  [[nodiscard]] error misfit(const retried_operation& one) const;

  std::shared_ptr<arbiter> above_;
  std::atomic<bool> looking_{false}; ///< A task for look_again() is queued.
  std::atomic<std::uint64_t> put_aside_{0};
  std::atomic<std::uint64_t> run_again_{0};
  std::atomic<std::uint64_t> given_up_{0};

  operation_list all_;                   ///< All enrolled operations, in the order of their release.
  std::shared_ptr<ordered_world> world_; ///< The current epoch; null between two epochs.
  std::vector<lane> held_;               ///< Lanes held in world_.
  std::map<epoch, bool> released_;       ///< Epochs whose work has ended, and whether safely.
  std::size_t waiting_ = 0;
  time_point due_ = time_point::max();
  bool ended_ = false;
};

} // namespace troupe
