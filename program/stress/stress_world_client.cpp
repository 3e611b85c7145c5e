#include <troupe/actors.hpp>
#include <troupe/program/conform/conform_image.hpp>
#include <troupe/program/stress/stress_client.hpp>

#include <troupe/actors/caf/actor_error.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

/// A request to the world holds all ranks' parts, so this actor has the memory of all ranks.
class stress_world_client final : public listener_handle::base {
public:
  stress_world_client(caf::actor_config& settings, const stress_task& task, stress_scene* scene, std::latch* ended)
    : listener_handle::base{settings},
      task_{task},
      scene_{*scene},
      ended_{*ended},
      chance_{scramble(task.seed ^ (task.client * 1'000))},
      epoch_{scene->where.epoch()},
      at_{actor_of(scene->where)},
      lanes_(task.lanes) {
    for (own_lane& one : lanes_)
      for (const rank self : scene->where.local_ranks())
        one.slots.emplace_back(scene->where, self, memory_kind::device, scene->script.room_bytes());
  }

  behavior_type make_behavior() override {
    for (std::size_t i = 0; i < lanes_.size(); ++i) begin(i);
    return {[this](const world_event&) {
      if (waits_ > 0) {
        --waits_;
        return compat::send(this, listener_handle{this}, world_event{});
      }
      lingering_ = false;
      for (std::size_t i = 0; i < lanes_.size(); ++i)
        if (std::exchange(lanes_[i].refused, false)) ask(i);
    }};
  }

  void on_exit() override {
    lanes_.clear(); // Releases memory before the runtime is destroyed.
    at_ = nullptr;
    ended_.count_down();
  }

private:
  /// A lane with one operation in progress at a time: copies in, the operation, copies out, one after another.
  struct own_lane {
    std::size_t next = 0;             ///< The next step.
    std::size_t at = 0;               ///< Index of the current request.
    bool refused = false;             ///< The current request was refused as busy and must be sent again.
    std::vector<stress_slot> slots{}; ///< By rank.
    std::vector<std::vector<operation>> requests{};
    std::size_t operation_at = 0; ///< Index of the request that is not a copy.
  };

  void begin(std::size_t which) {
    own_lane& in = lanes_[which];
    if (in.next == task_.steps || failed_) {
      if (++finished_ == lanes_.size()) quit();
      return;
    }
    const conform_piece piece = scene_.script.piece_of({task_.client, which, in.next});
    std::vector<group> groups;
    for (std::size_t r = 0; r < in.slots.size(); ++r) {
      const rank self{static_cast<int>(r)};
      groups.push_back(part_of(piece, self, in.slots[r].fill(piece, self, scene_.values)));
    }
    const bool is_simple = std::ranges::all_of(groups, [](const group& mine) { return mine.parts.size() == 1; });
    std::vector<operation> parts;
    for (group& mine : groups) parts.push_back(is_simple ? std::move(mine.parts.front()) : operation{std::move(mine)});

    in.at = 0;
    in.requests.clear();
    const bool has_memory = !piece.ranges.empty();
    in.operation_at = has_memory ? 1 : 0;
    const auto copies = [&](copy (conform_image::*make)() const) {
      std::vector<operation> all;
      for (const stress_slot& one : in.slots) all.emplace_back((one.image.*make)());
      return all;
    };
    if (has_memory) in.requests.push_back(copies(&conform_image::upload));
    in.requests.push_back(std::move(parts));
    if (has_memory) in.requests.push_back(copies(&conform_image::download));
    ask(which);
  }

  /// Sends the lane's current request. The first reply reports where each rank launched it; await() then waits for its
  /// outcome.
  void ask(std::size_t which) {
    own_lane& in = lanes_[which];
    scene_.ledger.asked();
    compat::request_unbounded(this, at_, overlapped_world_request{{in.requests[in.at], epoch_}})
        .then(
            [this, which](const enqueued& told) {
              own_lane& mine = lanes_[which];
              if (mine.at == mine.operation_at)
                for (const launch_mark& one : told.ranks)
                  scene_.ledger.launched(one.rank, {task_.client, which, mine.next}, one.launch);
              await(which, told.outcome);
            },
            [this, which](const caf::error& failure) { hear(which, from_caf(failure)); });
  }

  void await(std::size_t which, const outcome_claim& outcome) {
    compat::request_unbounded(this, at_, outcome_request{outcome})
        .then(
            [this, which](const completion&) {
              own_lane& in = lanes_[which];
              scene_.ledger.answered();
              if (++in.at < in.requests.size()) return ask(which);
              verify(in, {task_.client, which, in.next});
              ++in.next;
              begin(which);
            },
            [this, which](const caf::error& failure) { hear(which, from_caf(failure)); });
  }

  void hear(std::size_t which, const error& why) {
    if (why.code == errc::busy && scene_.bounded) {
      scene_.ledger.refused();
      lanes_[which].refused = true;
      return linger();
    }
    scene_.ledger.answered(why);
    failed_ = true;
    begin(which);
  }

  void verify(own_lane& in, const stress_step& step) {
    for (stress_slot& one : in.slots) {
      const std::string fault = one.find_fault();
      scene_.ledger.verified(step, fault);
      failed_ = failed_ || !fault.empty();
    }
  }

  /// Yields to other actors for a while.
  void linger() {
    if (std::exchange(lingering_, true)) return;
    waits_ = chance_.below(20);
    compat::send(this, listener_handle{this}, world_event{});
  }

  stress_task task_;
  stress_scene& scene_;
  std::latch& ended_;
  draws chance_;
  epoch epoch_;
  world_handle at_;
  std::vector<own_lane> lanes_;
  std::size_t finished_ = 0;
  std::size_t waits_ = 0;
  bool lingering_ = false;
  bool failed_ = false;
};

} // namespace

void spawn_stress_world_client(caf::actor_system& system, const stress_task& task, stress_scene& scene,
                               std::latch& ended) {
  system.spawn<stress_world_client>(task, &scene, &ended);
}

} // namespace troupe::program
