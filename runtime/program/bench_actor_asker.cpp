#include "bench_asker.hpp"

#include <troupe/actors/actor_error.hpp>

#include <atomic>
#include <utility>

namespace troupe::program {
struct start_series;
struct end_asker;
} // namespace troupe::program

TROUPE_LOCAL_TYPES_BEGIN(troupe_bench, 50)
TROUPE_LOCAL_TYPE(troupe_bench, troupe::program::start_series)
TROUPE_LOCAL_TYPE(troupe_bench, troupe::program::end_asker)
TROUPE_LOCAL_TYPES_END(troupe_bench)

namespace troupe::program {

namespace {

using steady = std::chrono::steady_clock;

} // namespace

/// One series, given to the actor and taken back when `ended` is set.
struct series_order {
  std::vector<operation> parts;
  epoch meant_for;
  std::size_t total = 0;
  std::size_t depth = 0;
  series result;
  error failure;
  std::atomic<bool> ended{false};
};

struct start_series {
  std::shared_ptr<series_order> order;
};
struct end_asker {};

using asker_handle = compat::typed_actor<caf::result<void>(start_series), caf::result<void>(end_asker)>;

namespace {

class asking_actor final : public asker_handle::base {
public:
  asking_actor(caf::actor_config& settings, world where) : asker_handle::base{settings}, world_{std::move(where)} {}

  behavior_type make_behavior() override {
    return {
        [this](start_series& begin) {
          order_ = std::move(begin.order);
          order_->result.each.reserve(order_->total);
          asked_ = 0;
          began_ = steady::now();
          while (asked_ < order_->total && asked_ < order_->depth) ask_next();
        },
        [this](end_asker) { quit(); },
    };
  }

private:
  void ask_next() {
    ++asked_;
    const time_point since = steady::now();
    compat::request_unbounded(this, world_.actor(), world_request{order_->parts, order_->meant_for})
        .then([this, since](const completion&) { replied(since); },
              [this, since](const caf::error& failure) {
                order_->failure = from_caf(failure);
                replied(since);
              });
  }

  void replied(time_point since) {
    const time_point now = steady::now();
    order_->result.each.push_back(now - since);
    if (asked_ < order_->total) ask_next();
    if (order_->result.each.size() < order_->total) return;
    order_->result.all = now - began_;
    std::exchange(order_, nullptr)->ended.store(true, std::memory_order_release);
  }

  world world_;
  std::shared_ptr<series_order> order_;
  std::size_t asked_ = 0;
  time_point began_;
};

class actor_asker final : public asker {
public:
  actor_asker(caf::actor_system& system, world where)
    : world_{where}, actor_{system.spawn<asking_actor>(std::move(where))} {}
  ~actor_asker() override { compat::post(actor_, end_asker{}); }

  [[nodiscard]] std::string_view name() const noexcept override { return "actor"; }

  [[nodiscard]] series ask(const std::vector<operation>& parts, std::size_t total, std::size_t depth) override {
    const auto order = std::make_shared<series_order>();
    order->parts = parts;
    order->meant_for = world_.epoch();
    order->total = total;
    order->depth = depth;
    compat::post(actor_, start_series{order});
    while (!order->ended.load(std::memory_order_acquire)) spin_pause();
    if (order->failure) throw exception{order->failure};
    return std::move(order->result);
  }

private:
  world world_;
  asker_handle actor_;
};

} // namespace

void register_asker_messages() {
  TROUPE_REGISTER_LOCAL_TYPES(troupe_bench);
}

std::unique_ptr<asker> make_actor_asker(caf::actor_system& system, world where) {
  return std::make_unique<actor_asker>(system, std::move(where));
}

} // namespace troupe::program
