#include <troupe/actors.hpp>
#include <troupe/program/conform/conform_image.hpp>
#include <troupe/program/stress/stress_client.hpp>

#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

/// Elements that every rank can reduce exactly, in any order.
constexpr std::array value_sources{
    value_source{.type = dtype::f32, .op = reduction::sum, .kind = value_kind::exact},
    value_source{.type = dtype::i32, .op = reduction::max, .kind = value_kind::exact},
    value_source{.type = dtype::u8, .op = reduction::min, .kind = value_kind::exact},
    value_source{.type = dtype::u64, .op = reduction::sum, .kind = value_kind::exact},
};

} // namespace

stress_script::stress_script(int ranks, std::uint64_t seed, std::size_t largest, const stress_decisions& decisions)
  : ranks_{ranks}, seed_{seed}, largest_{largest}, decisions_{decisions} {}

bool stress_script::is_commit(const stress_step& step) const {
  return decisions_.commit_every > 0 && step.index % decisions_.commit_every == decisions_.commit_every - 1;
}

conform_piece stress_script::piece_of(const stress_step& step, epoch in) const {
  if (is_commit(step)) {
    conform_piece made;
    for (int r = 0; r < ranks_; ++r)
      made.steps.push_back({r, [number = step.index](auto) { return barrier{.commit = number}; }});
    return made;
  }
  return piece_of(step, in, decisions_.agree_percent);
}

conform_piece stress_script::piece_of(const stress_step& step, epoch in, std::size_t agree_percent) const {
  std::uint64_t seed = scramble(seed_ ^ scramble(step.client ^ scramble(step.lane ^ scramble(step.index))));
  draws draw{seed};
  const std::size_t kind = draw.below(100);
  const std::size_t count = draw.below(8) == 0 ? 0 : 1 + draw.below(largest_);
  const value_source source = value_sources[draw.below(value_sources.size())];
  const auto ranks = static_cast<std::size_t>(ranks_);
  if (kind < 5) return make_barrier(ranks_);
  if (kind >= 100 - agree_percent) {
    const agreement_rule rule = enum_values<agreement_rule>[draw.below(enum_values<agreement_rule>.size())];
    if (!decisions_.stamp) return make_agree(ranks_, rule, seed);
    constexpr unsigned bits_left_out = 10;
    seed = scramble(seed ^ scramble(*decisions_.stamp ^ in.value()));
    return make_agree(ranks_, rule, seed, scramble(seed) >> bits_left_out);
  }
  if (in != epoch{}) seed = scramble(seed ^ in.value());
  if (kind < 35 && ranks_ > 1) {
    transfer_spec spec{.tag = static_cast<int>(draw.below(3)), .type = dtype::u8, .count = count, .seed = seed};
    if (kind < 10) return make_ring(ranks_, spec);
    const std::size_t from = draw.below(ranks);
    spec.from = static_cast<int>(from);
    spec.to = static_cast<int>((from + 1 + draw.below(ranks - 1)) % ranks);
    return make_transfer(spec);
  }
  const auto all = conform_collectives();
  const conform_collective& one = all[draw.below(all.size())];
  return one.make({.ranks = ranks_,
                   .values = one.reduces ? source : value_source{.type = dtype::u8},
                   .count = count,
                   .in_place = one.can_be_in_place && draw.below(2) == 0,
                   .unaligned = draw.below(4) == 0,
                   .seed = seed});
}

conform_piece stress_script::planned_piece(std::size_t client, std::size_t lane) const {
  return piece_of({client, lane, std::numeric_limits<std::size_t>::max()}, {}, 0); // no step has this index
}

bool stress_script::is_replay(const stress_step& step) const {
  return scramble(seed_ + scramble(step.index + scramble(step.lane + scramble(step.client)))) % 8 == 0;
}

std::size_t stress_script::room_bytes() const {
  // The longest argument holds a part for each rank, and there are two arguments; v-forms leave gaps between parts.
  const conform_range longest{
      .role = "longest", .values = {.type = dtype::u64}, .count = 2 * largest_ * static_cast<std::size_t>(ranks_)};
  return 4 * conform_image::room_for(longest);
}

std::vector<buffer> stress_slot::fill(const conform_piece& piece, rank self, known_values& values) {
  image.clear();
  placed.clear();
  return image.place(piece, self, values, placed);
}

std::string stress_slot::find_fault() {
  for (const std::size_t one : placed)
    if (std::string fault = image.find_fault(one); !fault.empty()) return fault;
  return {};
}

void capture_stress_plan(stress_scene& scene, std::size_t client, std::size_t lane) {
  const conform_piece piece = scene.script.planned_piece(client, lane);
  stress_plan made;
  std::map<rank, group> parts;
  for (const rank self : scene.where.local_ranks()) {
    const auto slot =
        made.slots.try_emplace(self, scene.where, self, memory_kind::device, scene.script.room_bytes()).first;
    parts.emplace(self, part_of(piece, self, slot->second.fill(piece, self, scene.values)));
  }
  made.plan = scene.where.capture([parts = std::move(parts)](rank_capture& mine) {
    if (const group& all = parts.at(mine.self()); !all.parts.empty()) mine.launch(as_operation(all));
  });
  scene.plans.emplace(std::pair{client, lane}, std::move(made));
}

namespace {

class stress_client final : public listener_handle::base {
public:
  stress_client(caf::actor_config& settings, const stress_task& task, std::optional<rank> self, stress_scene* scene,
                std::latch* ended)
    : listener_handle::base{settings},
      task_{task},
      self_{self},
      served_{self ? std::vector{*self} : scene->where.local_ranks()},
      scene_{*scene},
      ended_{*ended},
      chance_{scramble(task.seed ^ (task.client * 1'000 + (self ? static_cast<std::uint64_t>(self->value()) + 1 : 0)))},
      epoch_{task.in == epoch{} ? scene->where.epoch() : task.in},
      window_{self && !scene->bounded ? stress_window : 1} {
    for (std::size_t i = 0; i < task.lanes; ++i) {
      own_lane& made = lanes_.emplace_back();
      made.name = lane::named(stress_lane_name(task.client, i));
      if (!task.first.empty()) made.next = task.first[i];
      if (const auto found = scene->plans.find({task.client, i}); self && found != scene->plans.end()) {
        made.plan = found->second.plan;
        made.planned = &found->second.slots.at(*self);
      }
      made.slots.resize(window_);
      for (auto& of_step : made.slots)
        for (const rank one : served_)
          of_step.emplace_back(scene->where, one, memory_kind::device, scene->script.room_bytes());
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
    again_.clear();
    task_.under = {};
    lanes_.clear(); // Releases memory before the runtime is destroyed.
    ended_.count_down();
  }

private:
  struct own_lane {
    troupe::lane name{};
    std::size_t next = 0;                          ///< The next step.
    std::size_t under_way = 0;                     ///< Steps in progress.
    std::uint64_t position = 0;                    ///< The position of the next request.
    std::vector<std::vector<stress_slot>> slots{}; ///< For each step in progress, those of the ranks served.
    std::shared_ptr<captured_plan> plan{};         ///< Null if no step replays one.
    stress_slot* planned = nullptr;                ///< The plan's memory.
  };
  /// The requests of a step, each with the operations of the ranks served.
  struct started {
    own_lane& in;
    stress_step step;
    std::vector<stress_slot*> places;
    std::vector<std::vector<operation>> requests{};
    std::optional<agreed_value> agreed{}; ///< The value that the reply must have: conform_piece::agreed.
    std::size_t operation_at = 0;         ///< Index of the request that is not a copy.
    std::uint64_t first_position = 0;     ///< The position of requests[0] in the lane.
    std::size_t next = 0;                 ///< The first request that was not sent.
    std::size_t missing = 0;              ///< Replies that have not arrived.
    std::optional<std::size_t> from{};    ///< The first request that was refused.
  };

  /// Yields to other actors for a while. The duration differs between ranks.
  void linger() {
    if (std::exchange(lingering_, true)) return;
    waits_ = chance_.below(16) == 0 ? chance_.below(200) : chance_.below(3);
    compat::send(this, listener_handle{this}, world_event{});
  }

  void advance() {
    if (failed_) {
      under_way_ -= std::exchange(again_, {}).size();
      if (under_way_ == 0) quit();
      return;
    }
    if (!again_.empty()) {
      const auto one = std::move(again_.back());
      again_.pop_back();
      ask_from(one, *std::exchange(one->from, std::nullopt));
      return linger();
    }
    const std::size_t first = chance_.below(lanes_.size());
    bool left = under_way_ > 0;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const std::size_t which = (first + i) % lanes_.size();
      own_lane& one = lanes_[which];
      left = left || one.next < task_.steps;
      if (one.next < task_.steps && one.under_way < window_ && !must_wait(one, which)) {
        ask(which);
        return linger();
      }
    }
    if (!left) quit();
  }

  [[nodiscard]] bool is_replay(const own_lane& in, const stress_step& step) const {
    return in.plan && scene_.script.is_replay(step);
  }
  /// Returns whether the next step needs memory that an earlier one is using.
  [[nodiscard]] bool must_wait(const own_lane& in, std::size_t which) const {
    return is_replay(in, {task_.client, which, in.next}) && in.planned->busy;
  }

  void ask(std::size_t which) {
    own_lane& in = lanes_[which];
    const stress_step step{task_.client, which, in.next++};
    const bool replays = is_replay(in, step);
    const conform_piece piece =
        replays ? scene_.script.planned_piece(task_.client, which) : scene_.script.piece_of(step, task_.in);
    std::vector<stress_slot*> places;
    if (replays)
      places.push_back(in.planned);
    else
      for (stress_slot& one : *std::ranges::find_if(in.slots, [](const auto& all) { return !all.front().busy; }))
        places.push_back(&one);
    std::vector<group> groups;
    for (std::size_t i = 0; i < places.size(); ++i)
      groups.push_back(part_of(piece, served_[i], places[i]->fill(piece, served_[i], scene_.values)));
    if (self_ && groups.front().parts.empty() && !replays) return; // This rank takes no part.
    const bool is_simple = std::ranges::all_of(groups, [](const group& mine) { return mine.parts.size() == 1; });
    std::vector<operation> parts;
    for (group& mine : groups) parts.push_back(is_simple ? std::move(mine.parts.front()) : operation{std::move(mine)});
    if (replays) parts.front() = replay{in.plan};

    for (stress_slot* const one : places) one->busy = true;
    ++in.under_way;
    ++under_way_;
    const auto all = std::make_shared<started>(started{in, step, std::move(places)});
    all->agreed = piece.agreed;
    const auto copies = [&](copy (conform_image::*make)() const) {
      std::vector<operation> of_ranks;
      for (const stress_slot* const one : all->places) of_ranks.emplace_back((one->image.*make)());
      return of_ranks;
    };
    const bool has_memory =
        std::ranges::any_of(all->places, [](const stress_slot* one) { return !one->placed.empty(); });
    if (has_memory) all->requests.push_back(copies(&conform_image::upload));
    all->operation_at = all->requests.size();
    all->requests.push_back(std::move(parts));
    if (has_memory) all->requests.push_back(copies(&conform_image::download));
    all->first_position = in.position;
    in.position += all->requests.size();
    ask_from(all, 0);
  }

  /// Sends the requests of the step, beginning with index \p first. Requests to the world are sent one at a time.
  void ask_from(const std::shared_ptr<started>& all, std::size_t first) {
    all->next = self_ ? all->requests.size() : first + 1;
    all->missing = all->next - first;
    for (std::size_t i = first; i < all->next; ++i) {
      scene_.ledger.asked();
      if (self_)
        ask_rank(all, i);
      else
        ask_world(all, i);
    }
  }

  void ask_rank(const std::shared_ptr<started>& all, std::size_t which) {
    rank_request asked{.what = all->requests[which].front(), .epoch = epoch_, .lane = all->in.name};
    asked.position = all->first_position + which;
    asked.credit = task_.under;
    compat::request_unbounded(this, collective_of(scene_.where, *self_), std::move(asked))
        .then(
            [this, all, which](const completion& reply) {
              if (which == all->operation_at) {
                keep_receipt(scene_, *self_, all->step, epoch_, all->agreed.has_value(), reply);
                if (!all->agreed && scene_.receipts == nullptr) scene_.ledger.launched(*self_, all->step, reply.launch);
              }
              compare(*all, reply);
              hear(all);
            },
            [this, all, which](const caf::error& failure) {
              const error why = from_caf(failure);
              if (which == all->operation_at)
                keep_receipt(scene_, *self_, all->step, epoch_, all->agreed.has_value(), why);
              hear(all, which, why);
            });
  }

  /// The first reply has the position at which each rank launched the request; the second one is the outcome.
  void ask_world(const std::shared_ptr<started>& all, std::size_t which) {
    const auto fail = [this, all, which](const caf::error& failure) { hear(all, which, from_caf(failure)); };
    if (all->agreed) { // it is not launched, and has one reply
      compat::request_unbounded(this, actor_of(scene_.where), world_request{all->requests[which], epoch_})
          .then(
              [this, all](const completion& reply) {
                compare(*all, reply);
                hear(all);
              },
              fail);
      return;
    }
    compat::request_unbounded(this, actor_of(scene_.where), overlapped_world_request{{all->requests[which], epoch_}})
        .then(
            [this, all, which, fail](const enqueued& told) {
              if (which == all->operation_at)
                for (const launch_mark& one : told.ranks) scene_.ledger.launched(one.rank, all->step, one.launch);
              compat::request_unbounded(this, actor_of(scene_.where), outcome_request{told.outcome})
                  .then([this, all](const completion&) { hear(all); }, fail);
            },
            fail);
  }

  /// Compares the agreed value of a reply with what the script says.
  void compare(const started& all, const completion& reply) {
    if (!all.agreed && !reply.agreed) return;
    const std::string fault = find_value_fault(all.agreed, reply);
    scene_.ledger.verified(all.step, fault);
    failed_ = failed_ || !fault.empty();
  }

  void hear(const std::shared_ptr<started>& all) {
    scene_.ledger.answered();
    settle(all);
  }

  void hear(const std::shared_ptr<started>& all, std::size_t which, const error& why) {
    const bool is_behind =
        all->from && why.code == errc::invalid_argument; // The refused request left a gap in the positions.
    if (scene_.bounded && !task_.under && (why.code == errc::busy || is_behind)) {
      scene_.ledger.refused();
      if (!all->from) all->from = which;
    } else if (scene_.receipts != nullptr && may_end_with_epoch(why.code)) {
      scene_.ledger.ended();
      failed_ = true;
    } else {
      scene_.ledger.answered(why);
      failed_ = true;
    }
    settle(all);
  }

  void settle(const std::shared_ptr<started>& all) {
    if (--all->missing > 0) return;
    if (failed_) return finish(*all);
    if (all->from) {
      again_.push_back(all);
      return linger();
    }
    if (all->next < all->requests.size()) return ask_from(all, all->next);
    finish(*all);
  }

  void finish(started& all) {
    const bool verifies = !failed_;
    for (stress_slot* const one : all.places) {
      if (verifies) {
        const std::string fault = one->find_fault();
        scene_.ledger.verified(all.step, fault);
        failed_ = failed_ || !fault.empty();
      }
      one->busy = false;
    }
    --all.in.under_way;
    --under_way_;
    advance();
  }

  stress_task task_;
  std::optional<rank> self_; ///< Empty if its requests are to the world.
  std::vector<rank> served_;
  stress_scene& scene_;
  std::latch& ended_;
  draws chance_;
  epoch epoch_;
  std::size_t window_;
  std::vector<own_lane> lanes_;
  std::vector<std::shared_ptr<started>> again_; ///< Steps whose requests must be sent again.
  std::size_t under_way_ = 0;
  std::size_t waits_ = 0;
  bool lingering_ = false;
  bool failed_ = false;
};

} // namespace

std::string stress_lane_name(std::size_t client, std::size_t lane) {
  return "stress " + std::to_string(client) + '.' + std::to_string(lane);
}

bool may_end_with_epoch(errc code) noexcept {
  constexpr std::array codes{errc::stale_epoch, errc::cancelled,    errc::stopping,  errc::rebuilding,
                             errc::rank_lost,   errc::world_failed, errc::abandoned, errc::communicator_failed};
  return std::ranges::find(codes, code) != codes.end();
}

std::string find_value_fault(const std::optional<agreed_value>& expected, const completion& reply) {
  const bool is_right =
      (!expected && !reply.agreed) || (expected && reply.agreed && reply.agreed->bytes == expected->bytes &&
                                       reply.agreed->part_sizes == expected->part_sizes);
  return is_right ? "" : "the reply has another agreed value, or none";
}

bool is_refused_for_all(const error& why) noexcept {
  return why.code == errc::deadline_exceeded && why.effect == effect::rejected;
}

void keep_receipt(const stress_scene& scene, rank self, const stress_step& step, epoch in, bool is_agree,
                  const outcome& result) {
  if (scene.receipts == nullptr) return;
  receipt one{.world = scene.name,
              .where = stress_lane_name(step.client, step.lane),
              .rank = self.value(),
              .epoch = in,
              .step = step.index};
  if (const error* const why = failure_of(result)) {
    if (!is_agree || why->effect != effect::rejected) return;
    one.kind = is_refused_for_all(*why) ? receipt_kind::refused : receipt_kind::rejected;
    one.text = to_string(why->code);
  } else if (const auto& reply = std::get<completion>(result); reply.agreed) {
    one.kind = receipt_kind::answered;
    one.value = *reply.agreed;
  } else {
    if (!scene.script.is_commit(step)) return;
    one.kind = receipt_kind::committed;
  }
  scene.receipts->write(std::move(one));
}

void spawn_stress_client(caf::actor_system& system, const stress_task& task, std::optional<rank> self,
                         stress_scene& scene, std::latch& ended) {
  system.spawn<stress_client>(task, self, &scene, &ended);
}

namespace {

std::string name_of(const stress_step& step) {
  return "operation " + std::to_string(step.index) + " of lane " + std::to_string(step.lane) + " of client " +
         std::to_string(step.client);
}

} // namespace

stress_totals& stress_totals::operator+=(const stress_totals& more) {
  asked += more.asked;
  answered += more.answered;
  failed += more.failed;
  refused += more.refused;
  ended += more.ended;
  verified += more.verified;
  wrong += more.wrong;
  if (first.empty()) first = more.first;
  return *this;
}

void stress_ledger::launched(rank self, const stress_step& step, std::uint64_t launch) {
  log& mine = logs_[static_cast<std::size_t>(self.value())];
  const std::lock_guard lock{mine.mutex};
  mine.entries.push_back({step, launch});
}

void stress_ledger::verified(const stress_step& step, const std::string& fault) {
  if (fault.empty()) return add({.verified = 1});
  add({.verified = 1, .wrong = 1, .first = name_of(step) + ": " + fault});
}

void stress_ledger::add(const stress_totals& more) {
  if (receipts_ != nullptr && !more.first.empty()) receipts_->write({.kind = receipt_kind::fault, .text = more.first});
  const std::lock_guard lock{mutex_};
  totals_ += more;
}

stress_totals stress_ledger::sum() const {
  const std::lock_guard lock{mutex_};
  return totals_;
}

void stress_ledger::sort() {
  for (log& one : logs_) std::ranges::sort(one.entries, {}, &entry::step);
}

std::size_t stress_ledger::doubled() {
  sort();
  std::size_t found = 0;
  for (const log& one : logs_)
    for (std::size_t i = 1; i < one.entries.size(); ++i)
      found += one.entries[i - 1].step == one.entries[i].step ? 1 : 0;
  return found;
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(stress_totals, asked, answered, failed, refused, ended, verified, wrong, first)

nlohmann::json stress_ledger::report() const {
  auto logs = nlohmann::json::array();
  for (const log& one : logs_) {
    auto& entries = logs.emplace_back(nlohmann::json::array());
    for (const entry& each : one.entries)
      entries.push_back({each.step.client, each.step.lane, each.step.index, each.launch});
  }
  return {{"totals", sum()}, {"logs", std::move(logs)}};
}

void stress_ledger::add_report(const nlohmann::json& report) {
  add(report.at("totals").get<stress_totals>());
  for (std::size_t i = 0; i < logs_.size(); ++i)
    for (const auto& [client, lane, index, launch] :
         report.at("logs").at(i).get<std::vector<std::array<std::uint64_t, 4>>>())
      logs_[i].entries.push_back({{client, lane, index}, launch});
}

std::string stress_ledger::disorder(std::size_t& compared) {
  compared = 0;
  sort();
  struct shared {
    std::uint64_t here = 0, there = 0;
    const stress_step* step = nullptr;
  };
  std::vector<shared> both;
  for (std::size_t a = 0; a < logs_.size(); ++a)
    for (std::size_t b = a + 1; b < logs_.size(); ++b) {
      both.clear();
      auto other = logs_[b].entries.begin();
      for (const entry& one : logs_[a].entries) {
        while (other != logs_[b].entries.end() && other->step < one.step) ++other;
        if (other == logs_[b].entries.end()) break;
        if (other->step == one.step) both.push_back({one.launch, other->launch, &one.step});
      }
      std::ranges::sort(both, {}, &shared::here);
      compared += both.size();
      for (std::size_t i = 1; i < both.size(); ++i) {
        const bool together = both[i - 1].here == both[i].here;
        if (together ? both[i - 1].there == both[i].there : both[i - 1].there < both[i].there) continue;
        return "ranks " + std::to_string(a) + " and " + std::to_string(b) + " launched " + name_of(*both[i - 1].step) +
               " and " + name_of(*both[i].step) + " in different orders: " + std::to_string(both[i - 1].here) + ", " +
               std::to_string(both[i].here) + " and " + std::to_string(both[i - 1].there) + ", " +
               std::to_string(both[i].there);
      }
    }
  return {};
}

} // namespace troupe::program
