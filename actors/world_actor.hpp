/// The actor that forms a world, orders requests to all of it, watches its ranks and ends it.
#pragma once

#include <troupe/actors/collective_state.hpp>
#include <troupe/actors/maintenance.hpp>
#include <troupe/actors/messages.hpp>
#include <troupe/actors/offspring.hpp>
#include <troupe/actors/world_entrance.hpp>
#include <troupe/actors/world_plan.hpp>
#include <troupe/actors/world_registration.hpp>
#include <troupe/actors/world_state.hpp>
#include <troupe/collectives/validation.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <vector>

namespace troupe {

/// Shell around world_state: carries out its effects. Everything that may block runs in helpers (BLK-1). Requests to
/// all ranks are dealt with at the door, by the thread that brings them.
class world_actor final : public world_inner_handle::base {
public:
  /// \p collectives are the local ranks' actors and \p states what they decide by, in the order of \p plan's locals.
  world_actor(caf::actor_config& settings, world_plan plan, std::vector<collective_handle> collectives,
              std::vector<std::shared_ptr<collective_state>> states);

  using world_inner_handle::base::enqueue;
  compat::enqueue_result enqueue(caf::mailbox_element_ptr what, compat::enqueue_host* host) override;
  behavior_type make_behavior() override;
  void on_exit() override;

private:
  void carry_out(world_effects effects);
  void form();
  [[nodiscard]] std::vector<std::shared_ptr<communicator>> make_ends() const;
  void adopt();
  void close_order(const error& reason);
  void hold();
  void close_gates(const error& reason);
  void announce(const world_event& event);
  /// Tells the entrance what holds now.
  void publish();
  void split(split_request asked, std::shared_ptr<split_answer> reply);
  void register_memory(registration_request asked, std::shared_ptr<registration_answer> reply);
  void enroll(const std::shared_ptr<world_registration>& made);
  void capture(capture_request asked, std::shared_ptr<capture_answer> reply);
  [[nodiscard]] error objection_to(const capture_request& asked) const;
  /// Captures \p plan for the present epoch; \p tell is called in a helper, with errc::none or why not.
  void capture_now(const std::shared_ptr<captured_plan>& plan, std::function<void(const error&)> tell);
  void recapture_plans();
  void give_credit(const credit_request& asked, std::shared_ptr<credit_answer> reply);
  void stop();
  void maintain();
  void drop_maintenance(const error& reason);

  using step = std::function<void(rank_pipeline&)>;
  /// Runs \p work on every local rank's pipeline in helpers, and reports each end to this actor.
  void on_every_rank(const char* doing, nanoseconds deadline, rank_report::kind report, const step& work);
  void on_each(const std::vector<std::shared_ptr<rank_pipeline>>& pipelines, const char* doing, nanoseconds deadline,
               rank_report::kind report, const step& work);
  void retire();

  world_plan plan_;
  const std::uint64_t number_; ///< Of this world among all of the process (world_stamp).
  world_state state_;
  world_entrance entrance_;
  std::vector<collective_handle> collectives_;
  std::vector<std::shared_ptr<collective_state>> states_;
  std::vector<std::shared_ptr<rank_pipeline>> pipelines_;
  std::vector<std::shared_ptr<rank_pipeline>> retired_; ///< Of failed epochs, and not told to abort.
  std::vector<listener_handle> listeners_;
  std::deque<maintenance> maintenance_;
  offspring offspring_;
  std::vector<std::shared_ptr<registered_pool>> registered_;
  std::vector<std::weak_ptr<captured_plan>> captured_; ///< To be captured again in the next epoch.
  std::shared_ptr<ordered_world> order_;               ///< Where all ranks live in this process, once they have formed.
  std::shared_future<void> held_;                      ///< Ready when every pipeline holds what comes.
  std::shared_future<void> closed_;                    ///< Ready when nothing more comes out of order_.
  bool stopping_ = false;
  bool has_served_ = false; ///< It has been ready once.
  compat::watches watches_;
  bool left_ = false;
};

/// Spawns a world and one collective actor per local rank. Its phases appear on \p plan's board.
struct spawned_world {
  world_inner_handle world;
  std::vector<collective_handle> collectives;
};
[[nodiscard]] spawned_world spawn_world(caf::actor_system& system, world_plan plan);

} // namespace troupe
