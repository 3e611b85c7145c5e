/// The interface of the order of one world in one epoch.
#pragma once

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/rank_group.hpp>
#include <troupe/collectives/order/rank_order.hpp>
#include <troupe/collectives/order/remote_ranks.hpp>
#include <troupe/collectives/pipeline/plans/capture_agreement.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/collectives/progress/resume_points.hpp>
#include <troupe/collectives/progress/told_commits.hpp>
#include <troupe/completion/poller/latch.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/time.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

class ordered_world;

/// A request for a place in the order that all ranks of a world share.
struct turn_terms {
  std::string name{};                        ///< At most longest_plan_name_bytes.
  nanoseconds deadline = nanoseconds::max(); ///< Longest time for the others to request it.
  nanoseconds capture_limit{0};              ///< If not 0, a capture begins there, which may take this long.
  std::vector<rank_group> split{};           ///< If not empty, the order is opened for these groups there.
  /// If the split is repeated: for each group the commits of its world that the rank knows. Else empty.
  std::vector<told_commits> told{};
};

/// A world that a split has opened at the controller.
struct opened_world {
  std::uint64_t number = 0;                      ///< The controller's number of the world, in this epoch.
  std::uint64_t group = 0;                       ///< Index of its group in the split.
  std::shared_ptr<const resume_points> resume{}; ///< Where its lanes stood when the previous epoch ended, if known.
  /// For the service that decides for the world, if that is not the controller: the commits that its ranks know.
  told_commits told{};
};

/// How requests to all ranks of a world enter its order. Both are null under ordering::caller in a world over
/// processes, which has no order.
struct world_entry {
  std::shared_ptr<ordered_world> here{}; ///< Set if all ranks live in this process.
  std::shared_ptr<remote_ranks> peers{}; ///< Set if ranks live in other processes.
};

/// The order of one world in one epoch, as the ranks of this process take part in it. Implementations: ordered_world if
/// all ranks live in this process, distributed_order if they live in several (also for their sub-worlds), and
/// caller_order if clients order the requests of several processes themselves. Threads: all functions may be called
/// from any thread.
class world_order : public rank_order {
public:
  /// Called once. If the turn is granted, it is called at the turn's place in the order, after
  /// everything released before and before everything released later. Otherwise \p why says why it is not granted.
  /// \p opened: the worlds of a split in which the rank is. It must neither block nor throw.
  using turn_work = std::function<void(const error& why, std::span<const opened_world> opened)>;
  /// Requests a place in the order that all ranks share: the k-th calls of all ranks with the same name and groups form
  /// one place. If not all ranks have called it by the deadline, it is refused (deadline_exceeded, with the missing
  /// ranks). If all ranks live in this process, the turn is granted at once.
  virtual void turn(turn_terms asked, turn_work work) = 0;

  /// Called once, with the agreement for a capture that begins now, or with the reason why it
  /// will not begin.
  using capture_start = std::function<void(std::shared_ptr<capture_agreement>, error)>;
  /// Requests a turn for a capture of \p plan: ranks of other processes must ask for theirs of the same name within
  /// \p deadline, and a capture that takes longer than \p limit fails. Makes replays of the plan comparable between
  /// the ranks (captured_plan::common_number()). The agreement may outlive this object.
  virtual void capture(const std::shared_ptr<captured_plan>& plan, nanoseconds deadline, nanoseconds limit,
                       capture_start start) = 0;
  /// Returns errc::none, or why no plan can be captured in this order (unsupported).
  [[nodiscard]] virtual error objection_to_capture() const { return {}; }
  /// Returns the time after a capture's limit in which the order can report which rank is late. This process fails the
  /// capture by itself only after it.
  [[nodiscard]] virtual nanoseconds capture_grace() const noexcept { return nanoseconds{0}; }

  /// Sets the registered memory of the world. Requests that use it must use the same places at all ranks (ORD-2).
  virtual void set_registered(std::vector<std::shared_ptr<registered_pool>> pools) = 0;

  /// Returns whether sub-worlds take part in this order, which the turn of their split opens for them. If not, each
  /// has an order of its own, and recovers by itself.
  [[nodiscard]] virtual bool opens_sub_worlds() const noexcept { return false; }
  /// Opens the order of a sub-world. \p number: from the turn of its split (opened_world::number). \p pipeline: the
  /// rank's pipeline there. Null without opens_sub_worlds().
  [[nodiscard]] virtual std::shared_ptr<world_order>
  // NOLINTNEXTLINE(performance-unnecessary-value-param): those who override it keep the value
  open_world([[maybe_unused]] std::uint64_t number, [[maybe_unused]] std::shared_ptr<rank_pipeline> pipeline) {
    return nullptr;
  }
  /// Leaves the sub-world \p number, which the turn of a split has opened and this process does not open: requests of
  /// other ranks that need its rank are refused with \p why. Does nothing without opens_sub_worlds().
  // NOLINTNEXTLINE(performance-unnecessary-value-param): those who override it keep the value
  virtual void decline_world([[maybe_unused]] std::uint64_t number, [[maybe_unused]] error why) {}

  /// Ends this process's part in the order of this world. Its requests that are not released, and all later ones, are
  /// answered with \p why as rejected, and so are the requests of other ranks that need its ranks. Requests that the
  /// controller has released until then are launched. The latch opens when the controller has confirmed the end, after
  /// which nothing more is released, or when the connection is closed. Leaving the whole world closes the connection.
  /// If all ranks live in this process, the same as close().
  virtual std::shared_ptr<latch> leave(error why) = 0;
  /// Ends the order of this world in this process. Closing the whole world closes the connection at once: for an epoch
  /// that has failed, or whose order the controller has closed. A sub-world is left as by leave(). If \p for_good is
  /// false, because only the epoch ends, it only refuses later requests and ends with the whole world. Returns the
  /// latch of leave(); null if nothing needs to be waited for.
  virtual std::shared_ptr<latch> close(error why, bool for_good = true) = 0;

  /// Holds the requests of this process to the whole world that come from now on, until resume() or hand_over(). Calls
  /// \p quiet once, from any thread, when those before have been answered.
  virtual void hold(std::function<void()> quiet) { quiet(); }
  virtual void resume() {}
  /// Checks an operation for the next epoch.
  using operation_check = std::function<error(const operation& what)>;
  /// Ends the order, which the controller has held (order_server::hold()), and asks \p next, in the same order, for all
  /// that waits and for what is still asked here. A request of rank \p self that \p check refuses is refused there, at
  /// all ranks that it needs. Turns, captures and requests of sub-worlds are refused with \p why. Does not wait: \p
  /// done is called once, from any thread, when clients can ask \p next themselves: what they have asked here before is
  /// there already, and what they still ask here is there when ask() returns.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): those who override it keep the values
  virtual void hand_over([[maybe_unused]] std::shared_ptr<world_order> next, [[maybe_unused]] rank self,
                         [[maybe_unused]] operation_check check, error why, std::function<void()> done) {
    static_cast<void>(close(std::move(why)));
    done();
  }

  /// Returns why the controller has closed the order of the epoch: later requests are refused, and the controller's
  /// directive to end the epoch follows. errc::none if it has not.
  [[nodiscard]] virtual error ending() const { return {}; }
  /// Returns how requests to all ranks enter this order.
  [[nodiscard]] virtual world_entry entry() = 0;
  /// Begins to serve requests of other processes to this process's rank, first those that have arrived already.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): those who override it keep the value
  virtual void serve([[maybe_unused]] rank_services what) {}
  /// Returns errc::none, or why the order cannot be opened for these groups of a split (invalid_argument).
  [[nodiscard]] virtual error objection_to([[maybe_unused]] std::span<const rank_group> split) const { return {}; }
};

} // namespace troupe
