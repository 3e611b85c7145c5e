#include "stress_client.hpp"
#include "conform_image.hpp"

#include <troupe/actors/actor_error.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

class stress_client final : public listener_handle::base {
public:
  stress_client(caf::actor_config& settings, const stress_task& task, rank self, stress_scene* scene, std::latch* ended)
    : listener_handle::base{settings},
      task_{task},
      self_{self},
      scene_{*scene},
      ended_{*ended},
      chance_{scramble(task.seed ^ (task.client * 1'000 + static_cast<std::uint64_t>(self.value()) + 1))},
      epoch_{scene->where.epoch()},
      at_{scene->where.collective(self)} {
    for (std::size_t i = 0; i < task.lanes; ++i) {
      lanes_.push_back({lane::named("stress " + std::to_string(task.client) + '.' + std::to_string(i))});
      for (std::size_t k = 0; k < stress_window; ++k)
        lanes_.back().slots.emplace_back(scene->where, self, memory_kind::device, scene->script.room_bytes());
    }
  }

  behavior_type make_behavior() override {
    linger();
    return {[this](const world_event&) {
      if (waits_ > 0) {
        --waits_;
        return compat::send(this, listener_handle{this}, world_event{});
      }
      lingering_ = false;
      advance();
    }};
  }

  void on_exit() override {
    lanes_.clear(); // memory goes before the runtime does
    at_ = nullptr;
    ended_.count_down();
  }

private:
  struct slot {
    slot(const world& where, rank owner, memory_kind kind, std::size_t size_bytes)
      : image{where, owner, kind, size_bytes} {}
    conform_image image;
    std::vector<std::size_t> placed{};
    bool busy = false;
  };
  struct own_lane {
    troupe::lane name;
    std::size_t next = 0;      ///< Step.
    std::size_t under_way = 0; ///< Steps.
    std::vector<slot> slots{};
  };

  /// Lets others go first for a while: how long differs from rank to rank.
  void linger() {
    if (std::exchange(lingering_, true)) return;
    waits_ = chance_.below(16) == 0 ? chance_.below(200) : chance_.below(3);
    compat::send(this, listener_handle{this}, world_event{});
  }

  void advance() {
    if (failed_) {
      if (under_way_ == 0) quit();
      return;
    }
    const std::size_t first = chance_.below(lanes_.size());
    bool left = under_way_ > 0;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const std::size_t which = (first + i) % lanes_.size();
      own_lane& one = lanes_[which];
      left = left || one.next < task_.steps;
      if (one.next < task_.steps && one.under_way < stress_window) {
        ask(which);
        return linger();
      }
    }
    if (!left) quit();
  }

  void ask(std::size_t which) {
    own_lane& in = lanes_[which];
    const stress_step step{task_.client, which, in.next++};
    conform_piece piece = scene_.script.piece_of(step);
    group mine;
    slot* place = nullptr;
    for (slot& one : in.slots)
      if (!one.busy) place = &one;
    std::vector<buffer> memory(piece.ranges.size());
    place->image.clear();
    place->placed.clear();
    for (std::size_t i = 0; i < piece.ranges.size(); ++i) {
      if (piece.ranges[i].owner != self_.value()) continue;
      auto values = scene_.values.at(piece.ranges[i].values);
      place->placed.push_back(place->image.place(std::move(piece.ranges[i]), std::move(values)));
      memory[i] = place->image.memory_of(place->placed.back());
    }
    for (const conform_step& one : piece.steps)
      if (one.rank == self_.value()) mine.parts.push_back(one.make(memory));
    if (mine.parts.empty()) return; // others' business

    place->busy = true;
    ++in.under_way;
    ++under_way_;
    operation what = mine.parts.size() == 1 ? std::move(mine.parts.front()) : operation{std::move(mine)};
    auto all = std::make_shared<std::size_t>(requests_of_a_step); // replies that are missing
    const bool has_memory = !place->placed.empty();
    if (!has_memory) *all = 1;
    if (has_memory) ask_rank(in, step, place->image.upload(), false, place, all);
    ask_rank(in, step, std::move(what), true, place, all);
    if (has_memory) ask_rank(in, step, place->image.download(), false, place, all);
  }

  void ask_rank(own_lane& in, const stress_step& step, operation what, bool is_operation, slot* place,
                const std::shared_ptr<std::size_t>& missing) {
    scene_.ledger.asked(1);
    rank_request asked{.what = std::move(what), .epoch = epoch_, .lane = in.name};
    compat::request_unbounded(this, at_, std::move(asked))
        .then(
            [this, &in, step, is_operation, place, missing](const completion& reply) {
              scene_.ledger.answered(self_, step, reply, is_operation);
              if (--*missing == 0) finish(in, step, *place);
            },
            [this, &in, step, place, missing](const caf::error& failure) {
              scene_.ledger.answered(from_caf(failure));
              failed_ = true;
              if (--*missing == 0) finish(in, step, *place);
            });
  }

  void finish(own_lane& in, const stress_step& step, slot& place) {
    if (!failed_) {
      std::string fault;
      for (const std::size_t one : place.placed)
        if (fault.empty()) fault = place.image.find_fault(one);
      scene_.ledger.verified(step, fault);
      failed_ = failed_ || !fault.empty();
    }
    place.busy = false;
    --in.under_way;
    --under_way_;
    advance();
  }

  stress_task task_;
  rank self_;
  stress_scene& scene_;
  std::latch& ended_;
  draws chance_;
  epoch epoch_;
  collective_handle at_;
  std::vector<own_lane> lanes_;
  std::size_t under_way_ = 0;
  std::size_t waits_ = 0;
  bool lingering_ = false;
  bool failed_ = false;
};

} // namespace

void spawn_stress_client(caf::actor_system& system, const stress_task& task, rank self, stress_scene& scene,
                         std::latch& ended) {
  system.spawn<stress_client>(task, self, &scene, &ended);
}

} // namespace troupe::program
