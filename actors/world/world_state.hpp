/// What a world decides, without CAF: phases, epoch, the order of requests, and what a fault leads to.
#pragma once

#include <troupe/actors/control/control_messages.hpp>
#include <troupe/actors/world/recovery_ladder.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/operation/request.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe {

/// What the shell must do, in the order given.
namespace world_effect {
/// Every local rank: meet the others, in a helper. Where the communicators cannot be had that way, fell_back().
struct form {
  recovery_rung how = recovery_rung::abort_first; ///< shrink and revoke: of the pipelines that were put aside last.
  std::vector<rank> without{};                    ///< Of theirs, by their ranks; has been told by `lose`.
  std::optional<formation_order> order{};         ///< Where the world is guided.
};
/// The world's guide.
struct tell {
  process_message what;
};
/// Every collective actor: take your pipeline.
struct adopt {};
/// Tells those who listen.
struct announce {
  world_event event;
};
/// Every collective actor: reject requests from now on.
struct close_gates {
  error reason;
};
/// Every pipeline: set the mark. Comes before abort.
struct fail {
  error reason;
};
/// Every pipeline together, in helpers.
struct abort {};
/// Every pipeline is put aside: those of a new epoch take their places.
struct retire {};
/// These ranks, by their numbers in the epoch that has failed, are not in the next; those that are have new numbers.
struct lose {
  std::vector<rank> ranks;
  error reason; ///< What whoever asks them is told.
};
/// What was put aside, all together, in helpers. Each has a report of its own epoch, as after abort.
struct abort_retired {};
/// Tell this state later that it is time for the next epoch.
struct rebuild_after {
  nanoseconds delay;
};
/// Every pipeline, in helpers.
struct drain {};
/// Every pipeline: give the communicator back, in helpers.
struct release {};
/// Everything has been given back: collective actors and the world end.
struct leave {};
/// Every pipeline: accept requests, and launch none.
struct hold {};
/// Every pipeline, in helpers: what was launched ends, then the maintenance whose turn it is.
struct maintain {};
/// That maintenance has been done on every rank.
struct maintained {};
/// Maintenance that waits will not be done.
struct drop_maintenance {
  error reason;
};
/// Every pipeline: launch what was held.
struct resume {};
} // namespace world_effect

using world_effects = std::vector<std::variant<
    world_effect::form, world_effect::tell, world_effect::adopt, world_effect::announce, world_effect::close_gates,
    world_effect::fail, world_effect::abort, world_effect::retire, world_effect::lose, world_effect::abort_retired,
    world_effect::rebuild_after, world_effect::drain, world_effect::release, world_effect::leave, world_effect::hold,
    world_effect::maintain, world_effect::maintained, world_effect::drop_maintenance, world_effect::resume>>;

/// What of a world's state requests are judged by.
struct world_admission {
  error refusal{}; ///< Of whatever comes; errc::none where the world is ready.
  troupe::epoch epoch{};
  int world_size = 1;
  std::size_t local_count = 0;
  int began_with = 1; ///< Ranks of the first epoch.

  /// errc::none if \p asked may be sent to the ranks, else why not.
  [[nodiscard]] error objection_to(const world_request& asked) const;
};

/// The states are those of world_phase. Reports about ranks come once per rank and step; those of another epoch are
/// ignored (EPO-1).
class world_state {
public:
  /// \p local_ranks ascending and not empty; \p seed is the ladder's.
  world_state(int world_size, std::vector<rank> local_ranks, recovery_terms recovery = {},
              std::shared_ptr<const clock> time = std::make_shared<monotonic_clock>(), std::uint64_t seed = 0);

  [[nodiscard]] world_effects begin();
  /// \p blamed, here and below: as culprits_of() says of the failure.
  [[nodiscard]] world_effects on_formed(epoch formed_in, const error& failure, std::vector<rank> blamed = {});
  [[nodiscard]] world_effects on_fault(epoch formed_in, error failure, std::vector<rank> blamed = {});
  /// What `form` asked for cannot be made of the failed communicators, because of \p why: they are formed beside them.
  void fell_back(error why);
  /// A collective actor rejects requests from now on, and has submitted those that came before.
  [[nodiscard]] world_effects on_closed(epoch formed_in);
  [[nodiscard]] world_effects on_drained(epoch formed_in, const error& failure);
  /// A communicator was given back, or its abort has ended, or that was given up.
  [[nodiscard]] world_effects on_released(epoch formed_in, const error& failure);
  /// The delay is over that rebuild_after asked for in epoch \p failed.
  [[nodiscard]] world_effects on_rebuild_due(epoch failed);
  [[nodiscard]] world_effects on_stop();
  /// Work wants its turn for which nothing may be in flight: a split, a registration of memory. One is done at a time,
  /// in the order asked; requests wait meanwhile. Only where maintenance_objection() is errc::none.
  [[nodiscard]] world_effects on_maintenance_asked();
  /// One rank's part of the maintenance is over. A failure leaves the ranks out of step, so the world fails.
  [[nodiscard]] world_effects on_maintained(epoch formed_in, const error& failure, std::vector<rank> blamed = {});
  [[nodiscard]] error maintenance_objection(epoch meant_for) const;

  // world_state_guided.cpp: what a guided world's controller says.
  [[nodiscard]] world_effects on_formation(const formation_order& order);
  [[nodiscard]] world_effects on_failure(const failure_order& order);
  [[nodiscard]] world_effects on_quiesce(const quiesce_order& order);
  /// The controller will have no more to do with this process.
  [[nodiscard]] world_effects on_dismissed(error why);

  [[nodiscard]] world_admission admission() const;

  [[nodiscard]] world_event event() const;
  [[nodiscard]] epoch current_epoch() const noexcept { return epoch_; }
  [[nodiscard]] bool is_forming() const noexcept { return phase_ == world_phase::forming; }
  /// How it forms, or has formed last.
  [[nodiscard]] recovery_rung rung() const noexcept { return rung_; }

private:
  [[nodiscard]] world_effects fail(error reason, std::vector<rank> blamed = {});
  [[nodiscard]] world_effects rebuild(error reason, const recovery_step& step);
  /// As rebuild(), but what follows is for the controller to say.
  [[nodiscard]] world_effects await_guidance(error reason);
  [[nodiscard]] world_effects on_quiet();
  /// Goes on without \p ranks of the present numbering.
  [[nodiscard]] world_effect::lose lose(const std::vector<rank>& ranks);
  /// One more try has ended, with \p failure or well.
  void end_try(error failure);
  void close_history();
  [[nodiscard]] world_effects fail_closed(error reason);
  [[nodiscard]] world_effects on_retired_released();
  [[nodiscard]] world_effects finish();
  [[nodiscard]] world_effects close(error reason);
  [[nodiscard]] static error stopping_error();
  [[nodiscard]] error phase_objection() const;
  /// Counts one rank's report; true when it was the last.
  [[nodiscard]] bool last_report() noexcept;
  void expect_reports() noexcept { outstanding_ = local_ranks_.size(); }

  int world_size_;
  const int began_with_;
  std::vector<rank> local_ranks_;
  std::vector<rank> origins_; ///< Of the first epoch, in the order of local_ranks_.
  std::vector<lost_rank> lost_;
  world_phase phase_ = world_phase::forming;
  epoch epoch_{0};
  error reason_;
  std::size_t outstanding_ = 0;
  bool draining_ = false;  ///< All gates are closed, and pipelines are waited for.
  bool releasing_ = false; ///< Communicators are being given back or aborted.
  bool released_ = false;  ///< They all have been.
  bool stop_requested_ = false;
  std::shared_ptr<const clock> time_;
  recovery_ladder ladder_;
  const bool guided_;
  bool quiescing_ = false;                       ///< Guided: what is in flight ends, and then another epoch forms.
  bool has_served_ = false;                      ///< Only what has formed once is formed again.
  epoch retired_up_to_{0};                       ///< The latest epoch that was put aside.
  std::size_t retired_ = 0;                      ///< Pipelines that were put aside and are not released.
  bool unaborted_ = false;                       ///< Some of them have not been told to abort.
  std::optional<nanoseconds> waits_for_retired_; ///< The next epoch begins after their release and this delay.
  std::size_t maintenance_ = 0;                  ///< Asked and not done.
  recovery_rung rung_ = recovery_rung::abort_first;
  std::vector<rank> without_{}; ///< Whom the epoch that forms leaves out, by their ranks in the one before.
  time_point try_began_{};
  std::vector<recovery_try> tries_{}; ///< Since it was ready last.
  std::shared_ptr<const std::vector<recovery_try>> history_{};
};

} // namespace troupe
