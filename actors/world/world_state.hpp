/// Decides, without CAF, the phases and epochs of a world, the order of its maintenance, and the reaction to a fault.
#pragma once

#include <troupe/actors/world/controller_directives.hpp>
#include <troupe/actors/world/recovery/world_recovery.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/actors/world/world_ranks.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/poller/clock.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe {

/// The effects that world_executor must execute, in the given order.
namespace world_effect {
/// Form every local rank in a helper. If the communicators cannot be made in the given way, the executor calls
/// fell_back().
struct form {
  /// The way to make the communicators. shrink and revoke derive them from the pipelines that were retired last.
  recovery_rung how = recovery_rung::abort_first;
  std::vector<rank> without{}; ///< Excluded ranks by their numbers in the failed epoch; already passed to `lose`.
  std::optional<formation_directive> directive{}; ///< The controller's; set if the world is guided.
};
/// Send `what` to the world's controller.
struct tell {
  member_report what;
};
/// Give every collective actor its pipeline. \p continues: the requests that were held since on_quiesce() go on.
struct adopt {
  bool continues = false;
};
/// Refuse the requests that are held, and all that follow until the next epoch.
struct end_hold {
  error reason;
};
/// Announce an event to the subscribers.
struct announce {
  world_event event;
};
/// Make every collective actor reject requests from now on.
struct close_gates {
  error reason;
};
/// Mark every pipeline as failed. Comes before abort.
struct fail {
  error reason;
};
/// Abort all pipelines together, in helpers.
struct abort {};
/// Retire every pipeline, because the pipelines of a new epoch replace them.
struct retire {};
/// Remove these ranks, given by their numbers in the failed epoch. The remaining ranks get new numbers.
struct lose {
  std::vector<rank> ranks;
  error reason; ///< The error for requests to them.
};
/// Abort all retired pipelines together, in helpers. Each reports for its own epoch, as after abort.
struct abort_retired {};
/// Call on_rebuild_due() after `delay`.
struct rebuild_after {
  nanoseconds delay;
};
/// Drain every pipeline, in helpers.
struct drain {};
/// Release the communicator of every pipeline, in helpers.
struct release {};
/// End the collective actors and the world, because all resources have been released.
struct leave {};
/// In helpers, wait for each pipeline's launched operations, then run the next maintenance.
struct maintain {};
/// Report that the maintenance is done on every rank.
struct maintained {};
/// Cancel the waiting maintenance.
struct drop_maintenance {
  error reason;
};
} // namespace world_effect

using world_effects =
    std::vector<std::variant<world_effect::form, world_effect::tell, world_effect::adopt, world_effect::announce,
                             world_effect::close_gates, world_effect::fail, world_effect::abort, world_effect::retire,
                             world_effect::lose, world_effect::abort_retired, world_effect::rebuild_after,
                             world_effect::drain, world_effect::release, world_effect::leave, world_effect::maintain,
                             world_effect::maintained, world_effect::drop_maintenance, world_effect::end_hold>>;

struct world_admission;

/// Implements a world's decisions as a state machine whose states are those of world_phase. Reports about ranks arrive
/// once per rank and step. Reports of another epoch are ignored (EPO-1).
class world_state {
public:
  /// \p local_ranks must be ascending and not empty. \p recovery: nullopt if the world is guided by a controller, which
  /// decides what follows a fault. \p seed is passed to world_recovery.
  world_state(int world_size, std::vector<rank> local_ranks, std::optional<recovery_terms> recovery = recovery_terms{},
              std::shared_ptr<const clock> time = std::make_shared<monotonic_clock>(), std::uint64_t seed = 0);

  [[nodiscard]] world_effects begin();
  /// \p blamed, here and below: the result of culprits_of() for the failure.
  [[nodiscard]] world_effects on_formed(epoch formed_in, const error& failure, std::vector<rank> blamed = {});
  [[nodiscard]] world_effects on_fault(epoch formed_in, error failure, std::vector<rank> blamed = {});
  /// Records that the communicators of `form` could not be derived from the failed ones because of \p why, so that new
  /// ones are formed beside them.
  void fell_back(error why);
  [[nodiscard]] world_effects on_drained(epoch formed_in, const error& failure);
  /// Reports that a communicator was released, or that its abort has ended or was abandoned.
  [[nodiscard]] world_effects on_released(epoch formed_in, const error& failure);
  /// Reports that the delay of rebuild_after in epoch \p failed is over.
  [[nodiscard]] world_effects on_rebuild_due(epoch failed);
  [[nodiscard]] world_effects on_stop();
  /// Records that maintenance was requested, for example a split or a registration of memory. A stop waits for it.
  /// Requires that maintenance_objection() is errc::none.
  void on_maintenance_asked() noexcept { ++maintenance_; }
  /// Reports that the ranks hold client requests for a piece of maintenance. Pieces are done one at a time, in this
  /// order.
  [[nodiscard]] world_effects on_maintenance_due();
  /// Begins another step of the present piece of maintenance.
  [[nodiscard]] world_effects continue_maintenance();
  /// Reports that the ranks serve client requests again after the present piece of maintenance.
  [[nodiscard]] world_effects on_maintenance_over();
  /// Reports that a requested piece of maintenance will not be due.
  [[nodiscard]] world_effects on_maintenance_refused();
  /// Reports that one rank's part of the maintenance has ended. After a failure the ranks' states may differ, so the
  /// world fails.
  [[nodiscard]] world_effects on_maintained(epoch formed_in, const error& failure, std::vector<rank> blamed = {});
  [[nodiscard]] error maintenance_objection(epoch meant_for) const;

  // Messages of a guided world's controller.
  [[nodiscard]] world_effects on_formation(const formation_directive& directive);
  [[nodiscard]] world_effects on_failure(const failure_directive& directive);
  [[nodiscard]] world_effects on_quiesce(const quiesce_directive& directive);
  /// Handles the exclusion of this process by the controller.
  [[nodiscard]] world_effects on_dismissed(error why);

  [[nodiscard]] world_admission admission() const;

  [[nodiscard]] world_event event() const;
  [[nodiscard]] epoch current_epoch() const noexcept { return epoch_; }
  [[nodiscard]] bool is_forming() const noexcept { return phase_ == world_phase::forming; }
  /// Returns whether requests are held for the next epoch (quiesce_directive::is_planned).
  [[nodiscard]] bool is_held() const noexcept { return held_; }
  /// Returns the first epoch since which the world has changed only by plan. A client that has acknowledged one since
  /// has acknowledged the present one.
  [[nodiscard]] epoch unbroken_since() const noexcept { return since_; }
  /// Returns how the world forms, or how it has formed last.
  [[nodiscard]] recovery_rung rung() const noexcept { return rung_; }

private:
  [[nodiscard]] world_effects fail(error reason, std::vector<rank> blamed = {});
  [[nodiscard]] world_effects rebuild(error reason, const recovery_step& step);
  /// Returns whether the controller must determine the cause of a fault, because it may be in another process: an
  /// operation waits behind one that hangs there, or a peer has aborted its communicator.
  [[nodiscard]] bool needs_verdict(const error& failure) const noexcept;
  /// Like rebuild(), but the controller decides the next step.
  [[nodiscard]] world_effects await_controller(error reason);
  [[nodiscard]] world_effects on_quiet();
  /// Removes \p ranks, given by their present numbers.
  [[nodiscard]] world_effect::lose lose(const std::vector<rank>& ranks);
  /// Ends the present recovery attempt with \p failure, or successfully if it is errc::none.
  void end_try(error failure);
  void close_history();
  [[nodiscard]] world_effects fail_closed(error reason);
  [[nodiscard]] world_effects end_hold(const error& reason);
  [[nodiscard]] world_effects on_retired_released();
  [[nodiscard]] world_effects finish();
  [[nodiscard]] world_effects close(error reason);
  [[nodiscard]] world_effects stop_if_idle();
  /// Adds the effect drop_maintenance if maintenance was requested and is not done.
  void drop_maintenance(world_effects& effects, const error& reason);
  [[nodiscard]] static error stopping_error();
  [[nodiscard]] error phase_objection() const;
  /// Counts one rank's report. Returns true for the last one.
  [[nodiscard]] bool last_report() noexcept;
  void expect_reports() noexcept { outstanding_ = ranks_.local_count(); }

  /// The pipelines of failed epochs.
  struct retired_pipelines {
    epoch up_to{0};                          ///< The latest retired epoch.
    std::size_t count = 0;                   ///< Number of those that are not released yet.
    bool unaborted = false;                  ///< Whether the abort of some of them has not been started.
    std::optional<nanoseconds> next_after{}; ///< Set if the next epoch begins after their release and this delay.
  };
  /// The attempts to form again.
  struct recovery_attempts {
    time_point began{};                ///< The present one.
    std::vector<recovery_try> ended{}; ///< Those since the world was ready last.
    std::shared_ptr<const std::vector<recovery_try>> history{};
  };

  world_ranks ranks_;
  world_phase phase_ = world_phase::forming;
  epoch epoch_{0};
  error reason_;
  std::size_t outstanding_ = 0;
  bool releasing_ = false; ///< Whether communicators are being released or aborted.
  bool released_ = false;  ///< Whether all communicators have been released.
  bool stop_requested_ = false;
  std::shared_ptr<const clock> time_;
  std::optional<world_recovery> recovery_; ///< Not of a guided world.
  const bool guided_;
  bool quiescing_ = false;  ///< Guided: whether another epoch forms next, without a fault.
  bool held_ = false;       ///< Guided: see is_held().
  epoch since_{};           ///< See unbroken_since().
  error unjudged_{};        ///< Guided: a fault, with its epoch, that needs a verdict.
  error held_fault_{};      ///< A fault between the drain of a planned change and the next epoch.
  bool has_served_ = false; ///< Only a world that has formed once is formed again.
  retired_pipelines retired_;
  std::size_t maintenance_ = 0; ///< Number of pieces of maintenance requested and not done.
  std::size_t due_ = 0;         ///< How many of them are due.
  recovery_rung rung_ = recovery_rung::abort_first;
  std::vector<rank> without_{}; ///< The ranks that the forming epoch excludes, by their previous numbers.
  recovery_attempts attempts_;
};

} // namespace troupe
