/// One actor drives all trainers: a step is one all_reduce, into which the first puts its weights and the others what
/// they would add to them.

#include "cast.hpp"

#include <troupe/actors/actor_error.hpp>

#include <cstdio>
#include <utility>

namespace weights {

namespace {

class trainer final : public trainer_handle::base {
public:
  trainer(caf::actor_config& settings, const stage* where, ledger* books, publisher_handle publisher)
    : trainer_handle::base{settings}, stage_{*where}, books_{*books}, publisher_{std::move(publisher)} {
    troupe::world trainers = stage_.trainers;
    const std::size_t bytes = stage_.count * sizeof(std::uint32_t);
    const troupe::buffer host = stage_.whole.allocate_pinned(bytes);
    for (const troupe::rank self : stage_.trainers.local_ranks()) {
      for (std::size_t i = 0; i < stage_.count; ++i)
        host.host_span<std::uint32_t>()[i] = share_of(self.value(), i); // the first one's is 0: the first weights
      shares_.push_back(stage_.trainers.allocate(self, bytes));
      weights_.push_back(self.value() == 0 ? shares_.back() : stage_.trainers.allocate(self, bytes));
      trainers.copy(self, host, shares_.back()).get();
    }
  }

  behavior_type make_behavior() override {
    step();
    return {[this](const finish&) { finishing_ = true; }};
  }

  void on_exit() override {
    shares_.clear();
    weights_.clear();
    compat::post(publisher_, finish{});
    publisher_ = publisher_handle{};
    books_.ended.count_down();
  }

private:
  void step() {
    std::vector<troupe::operation> parts;
    for (std::size_t i = 0; i < shares_.size(); ++i)
      parts.emplace_back(troupe::all_reduce{shares_[i], weights_[i], stage_.count, troupe::dtype::u32});
    ask(stage_.trainers.actor(), troupe::world_request{std::move(parts), stage_.trainers.epoch()}, [this] {
      ++done_;
      ++books_.steps;
      if (done_ % stage_.publish_every == 0) return snapshot();
      go_on();
    });
  }

  /// The next step changes the weights, so what is published is a copy.
  void snapshot() {
    const troupe::rank first{0};
    const troupe::buffer copied = stage_.trainers.allocate(first, weights_.front().size_bytes());
    ask(stage_.trainers.collective(first),
        troupe::rank_request{.what = troupe::copy{weights_.front(), copied}, .epoch = stage_.trainers.epoch()},
        [this, copied] {
          compat::post(publisher_, publish{done_, copied});
          go_on();
        });
  }

  void go_on() {
    // It ends with a version, which every rollout must come to have.
    if (finishing_ && done_ % stage_.publish_every == 0) return quit();
    step();
  }

  template <class Handle, class Request, class Then>
  void ask(const Handle& whom, Request what, Then then) {
    compat::request_unbounded(this, whom, std::move(what))
        .then([then](const troupe::completion&) { then(); },
              [this](const caf::error& failure) {
                // What a trainer does then: examples/training_orchestrator.
                std::fprintf(stderr, "training ends: %s\n", to_string(troupe::from_caf(failure)).c_str());
                ++books_.wrong;
                quit();
              });
  }

  const stage& stage_;
  ledger& books_;
  publisher_handle publisher_;
  std::vector<troupe::buffer> shares_;  ///< What each adds: of the first, the weights so far.
  std::vector<troupe::buffer> weights_; ///< The sum: of the first, in place.
  version done_ = 0;
  bool finishing_ = false;
};

} // namespace

trainer_handle spawn_trainer(caf::actor_system& system, const stage& where, ledger& books, publisher_handle publisher) {
  return system.spawn<trainer>(&where, &books, std::move(publisher));
}

} // namespace weights
