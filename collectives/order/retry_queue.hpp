/// What a world's clients marked retry_safe: put aside when a fault takes it, and run again in the next epoch.
#pragma once

#include <troupe/collectives/operation/retry_claim.hpp>
#include <troupe/collectives/order/lane.hpp>
#include <troupe/collectives/order/release_queue.hpp>
#include <troupe/collectives/order/retry_counts.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/identity.hpp>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

class arbiter;
class ordered_world;
class retried_operation;

/// One for all epochs of a world. It knows each operation that all its participants marked so from its release to its
/// answers. When a fault has taken every part of one and no part has been answered, it is put aside, with its buffers
/// and answers; in the next epoch it goes into the order again, without being asked for.
///
/// In a lane the old relative order stays, and what the new epoch is asked for in the lane waits for the lane's last;
/// so does what requests to the whole world left behind among themselves. What may have been launched (unknown outcome)
/// must not run while the work of its old epoch may still write to its results: it waits until that epoch's pipelines
/// have been released, and with it what is behind it in its lane; other lanes go on. (docs/design/0030)
///
/// Threads: released(), end(), look_again() and counts() from any; the rest in the arbiter's turns.
class retry_queue final : public std::enable_shared_from_this<retry_queue> {
public:
  /// Made by arbiter::open_shelf().
  explicit retry_queue(std::shared_ptr<arbiter> above);
  retry_queue(const retry_queue&) = delete;
  retry_queue& operator=(const retry_queue&) = delete;
  ~retry_queue();

  /// Every pipeline of epoch \p of has let go of its device; not \p safely: some abort was given up, so that its work
  /// may write for ever. What was launched there is then answered.
  void released(epoch of, bool safely);
  /// There will be no next epoch: everything is answered with the fault that took it, also what comes later.
  void end();
  /// Something may have changed.
  void look_again() noexcept;
  [[nodiscard]] retry_counts counts() const noexcept;

  // The arbiter's turns ----------------------------------------------------------------------------------------------
  /// \p parts are released to \p where, all so marked, and asked for in \p line: a lane, or none of the whole world.
  void enroll(ordered_world& where, std::optional<lane> line, released_operation& parts);
  /// \p next is the world's new epoch: nothing has been asked there yet.
  void continue_in(std::shared_ptr<ordered_world> next);
  /// \p gone is closed.
  void leave(const ordered_world& gone) noexcept;
  void expire(time_point now);
  [[nodiscard]] time_point next_due() const noexcept { return due_; }
  /// Operations that wait for another epoch, or to be run in this one.
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_; }

private:
  using operation_list = std::deque<std::shared_ptr<retried_operation>>;

  void advance(time_point now);
  /// Whether \p one, of which parts are lost, is done with: run again, and another stands in its place, or answered.
  [[nodiscard]] bool dispose(std::shared_ptr<retried_operation>& one, bool line_is_free, time_point now);
  void run_again(std::shared_ptr<retried_operation>& one, time_point now);
  void give_up(retried_operation& one, error instead = {});
  [[nodiscard]] error misfit(const retried_operation& one) const;

  std::shared_ptr<arbiter> above_;
  std::atomic<bool> looking_{false}; ///< A turn for that is on its way.
  std::atomic<std::uint64_t> put_aside_{0};
  std::atomic<std::uint64_t> run_again_{0};
  std::atomic<std::uint64_t> given_up_{0};

  operation_list all_;                   ///< In the order of their release, whatever has become of them.
  std::shared_ptr<ordered_world> world_; ///< The present epoch; none between two.
  std::vector<lane> held_;               ///< Of world_.
  std::map<epoch, bool> released_;       ///< Epochs whose work has ended, and whether safely.
  std::size_t waiting_ = 0;
  time_point due_ = time_point::max();
  bool ended_ = false;
};

} // namespace troupe
