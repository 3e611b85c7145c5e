#include "batcher.hpp"

#include "shard.hpp"

#include <cstdint>
#include <cstdio>
#include <deque>
#include <utility>

namespace {

using troupe::compat::request_unbounded;

/// One rank's shard in an epoch.
class rank_part {
public:
  rank_part(const troupe::world& where, troupe::rank self, int ranks, const model& of, seat& on)
    : device_{where.device_of(self)},
      memory_{where.allocate(self, shard::memory_count(of.shape(), ranks) * sizeof(float))},
      seat_{&on},
      shard_{of, self.value(), ranks, *on.maths, reinterpret_cast<float*>(memory_.data())} {}
  rank_part(rank_part&&) = default;
  rank_part& operator=(rank_part&&) = delete;
  ~rank_part() {
    if (memory_) memory_.note_use(seat_->queue); // what a fault has left in the queue still uses it
  }

  [[nodiscard]] shard& own() noexcept { return shard_; }
  [[nodiscard]] troupe::stream_ref queue() const { return seat_->queue; }
  [[nodiscard]] troupe::operand partial() const { return made(0, shard_.partial_count()); }
  [[nodiscard]] troupe::operand logits() const { return made(shard_.partial_count(), shard_.logits_count()); }

private:
  /// Usable when the queue has come to here.
  [[nodiscard]] troupe::operand made(std::size_t first, std::size_t count) const {
    return {memory_.slice(first * sizeof(float), count * sizeof(float)), record_event(device_, queue())};
  }

  std::shared_ptr<troupe::device> device_;
  troupe::buffer memory_;
  seat* seat_;
  shard shard_;
};

class batcher final : public batcher_handle::base {
public:
  batcher(caf::actor_config& settings, batcher_terms terms)
    : batcher_handle::base{settings}, terms_{std::move(terms)}, slots_(count(shape().slots)) {
    input_ = terms_.where.allocate_pinned(terms_.of->input_count() * sizeof(float));
    logits_ = terms_.where.allocate_pinned(count(shape().slots * shape().vocabulary) * sizeof(float));
  }

  behavior_type make_behavior() override {
    troupe::compat::post(terms_.where.actor(), troupe::subscribe{troupe::listener_handle{this}});
    return {[this](const prompt& asked) { return take(asked); }, [this](const gathered&) { begin_step(); },
            [this](const troupe::world_event& event) { hear(event); }};
  }

  void on_exit() override {
    waiting_.clear();
    slots_.clear();
    parts_.clear();
    input_ = logits_ = {};
    terms_.ended->release();
  }

private:
  using promise = caf::typed_response_promise<generated>;
  struct job {
    prompt asked;
    promise to;
    sequence progress{};
  };

  static std::size_t count(int value) noexcept { return static_cast<std::size_t>(value); }
  [[nodiscard]] const model_shape& shape() const { return terms_.of->shape(); }

  promise take(const prompt& asked) {
    promise to = make_response_promise<generated>();
    if (failure_) {
      to.deliver(troupe::to_caf(*failure_));
      return to;
    }
    waiting_.push_back({asked, to});
    if (running_) return to; // the next step takes it along
    if (waiting_.size() == slots_.size())
      begin_step();
    else if (waiting_.size() == 1)
      troupe::compat::weak_handle<batcher_handle>{this}.post_after(terms_.gather, gathered{});
    return to;
  }

  void hear(const troupe::world_event& event) {
    if (event.phase == troupe::world_phase::failed) return refuse_all(event.reason);
    if (event.phase != troupe::world_phase::ready || event.epoch == epoch_) return;
    lose_step();
    try {
      epoch_ = event.epoch;
      parts_.clear();
      const auto ranks = static_cast<int>(event.local_ranks.size());
      if (shape().heads % ranks != 0)
        throw troupe::exception{troupe::errc::invalid_argument, "the heads cannot be dealt out to so many ranks"};
      for (const troupe::rank self : event.local_ranks)
        parts_.emplace_back(terms_.where, self, ranks, *terms_.of,
                            terms_.on->at(terms_.where.device_of(self)->id())[epoch_.value() % 2]);
    } catch (const troupe::exception& why) {
      if (terms_.where.status().epoch != event.epoch) return; // over already: the next is told of
      return refuse_all(why.why());
    }
    serving_ = true;
    begin_step();
  }

  void begin_step() {
    if (running_ || !serving_) return;
    std::size_t taken = 0;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (!slots_[i] && !waiting_.empty()) {
        slots_[i] = std::move(waiting_.front());
        waiting_.pop_front();
        slots_[i]->progress = {slots_[i]->asked.tokens};
      }
      terms_.of->write_input(input_.host_span<float>(), static_cast<int>(i),
                             slots_[i] ? &slots_[i]->progress : nullptr);
      if (slots_[i]) ++taken;
    }
    if (taken == 0) return;
    running_ = true;
    ++step_;
    stage_ = 0;
    for (rank_part& one : parts_) one.own().begin(input_.host_span<float>().data());
    run_stage();
  }

  /// The CPU waits for no GPU between the stages: each is in the queues before the sum ahead of it is done.
  void run_stage() {
    if (stage_ == parts_.front().own().stages() - 1) return fetch_logits();
    std::vector<troupe::operation> sums;
    for (rank_part& one : parts_) {
      one.own().run(stage_);
      const troupe::operand partial = one.partial();
      sums.emplace_back(troupe::all_reduce{partial, partial, one.own().partial_count()});
    }
    request_unbounded(this, terms_.where.actor(), troupe::overlapped_world_request{{std::move(sums), epoch_}})
        .then(
            [this, now = step_](const troupe::enqueued& told) {
              if (now != step_) return;
              for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].queue().wait(*told.ranks[i].behind);
              expect_outcome(terms_.where.actor(), troupe::outcome_request{told.outcome});
              ++stage_;
              run_stage();
            },
            [this, now = step_](const caf::error&) { fail(now); });
  }

  void fetch_logits() {
    const troupe::rank first{0};
    parts_.front().own().run(stage_);
    expect_outcome(terms_.where.collective(first),
                   troupe::rank_request{.what = troupe::copy{parts_.front().logits(), logits_}, .epoch = epoch_});
  }

  /// A step has ended when the logits are there and every sum ahead of them has succeeded.
  template <class Handle, class Request>
  void expect_outcome(const Handle& whom, Request what) {
    ++open_outcomes_;
    request_unbounded(this, whom, std::move(what))
        .then(
            [this, now = step_](const troupe::completion&) {
              if (now == step_ && --open_outcomes_ == 0 && stage_ == parts_.front().own().stages() - 1) end_step();
            },
            [this, now = step_](const caf::error&) { fail(now); });
  }

  void end_step() {
    running_ = false;
    ++terms_.figures->steps;
    auto& faults = terms_.figures->faults;
    if (!faults.empty() && !faults.back().served_again) {
      faults.back().served_again = troupe::monotonic_clock{}.now();
      faults.back().epoch = epoch_;
      faults.back().ranks = parts_.size();
    }
    const auto vocabulary = count(shape().vocabulary);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (!slots_[i]) continue;
      sequence& progress = slots_[i]->progress;
      progress.advance(logits_.host_span<float>().subspan(i * vocabulary, vocabulary));
      ++terms_.figures->tokens;
      if (progress.tokens.size() < slots_[i]->asked.length) continue;
      slots_[i]->to.deliver(generated{std::move(progress.tokens)});
      slots_[i].reset();
    }
    begin_step();
  }

  void fail(std::uint64_t step) {
    if (step == step_) lose_step();
  }

  /// What is in flight is lost: its users' requests wait at the front, for the next epoch.
  void lose_step() {
    if (!std::exchange(serving_, false)) return;
    ++step_; // whatever is still answered is of a step that is over
    running_ = false;
    open_outcomes_ = 0;
    terms_.figures->faults.push_back({troupe::monotonic_clock{}.now()});
    for (auto slot = slots_.rbegin(); slot != slots_.rend(); ++slot) {
      if (!*slot) continue;
      waiting_.push_front(std::move(**slot));
      slot->reset();
      ++terms_.figures->faults.back().asked_again;
    }
  }

  void refuse_all(const troupe::error& why) {
    lose_step();
    failure_ = why;
    for (job& one : waiting_) one.to.deliver(troupe::to_caf(why));
    waiting_.clear();
  }

  batcher_terms terms_;
  troupe::epoch epoch_{}; ///< That of parts_.
  std::vector<rank_part> parts_;
  troupe::buffer input_;
  troupe::buffer logits_;
  std::deque<job> waiting_;
  std::vector<std::optional<job>> slots_;
  bool serving_ = false;
  bool running_ = false;
  std::uint64_t step_ = 0;
  int stage_ = 0;
  int open_outcomes_ = 0;
  std::optional<troupe::error> failure_;
};

} // namespace

batcher_handle spawn_batcher(caf::actor_system& system, batcher_terms terms) {
  return system.spawn<batcher>(std::move(terms));
}
