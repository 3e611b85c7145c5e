#include "bench_client.hpp"

#include <troupe/actors/actor_error.hpp>

#include <algorithm>
#include <atomic>
#include <utility>

namespace troupe::program {
struct begin_round;
struct end_client;
} // namespace troupe::program

TROUPE_LOCAL_TYPES_BEGIN(troupe_bench, 50)
TROUPE_LOCAL_TYPE(troupe_bench, troupe::program::begin_round)
TROUPE_LOCAL_TYPE(troupe_bench, troupe::program::end_client)
TROUPE_LOCAL_TYPES_END(troupe_bench)

namespace troupe::program {

namespace {

using steady = std::chrono::steady_clock;

/// One client's part of a run, given to it and taken back when `missing` has been counted down.
struct client_order {
  std::shared_ptr<const client_work> work;
  epoch meant_for;
  std::size_t total = 0;
  std::size_t depth = 0;
  std::vector<request_times> times;
  error failure;
  std::shared_ptr<std::atomic<std::size_t>> missing; ///< Clients that are at work.
};

} // namespace

struct begin_round {
  std::shared_ptr<void> order; ///< A client_order.
};
struct end_client {};

using client_handle = compat::typed_actor<caf::result<void>(begin_round), caf::result<void>(end_client)>;

namespace {

class bench_client final : public client_handle::base {
public:
  bench_client(caf::actor_config& settings, world where) : client_handle::base{settings}, world_{std::move(where)} {}

  behavior_type make_behavior() override {
    return {
        [this](begin_round& begin) {
          order_ = std::static_pointer_cast<client_order>(std::move(begin.order));
          order_->times.reserve(order_->total);
          asked_ = in_flight_ = 0;
          free_.clear();
          if (order_->work->slots.size() >= order_->depth)
            for (std::size_t i = order_->depth; i > 0; --i) free_.push_back(i - 1);
          while (asked_ < order_->total && in_flight_ < order_->depth) ask_next();
        },
        [this](end_client) { quit(); },
    };
  }

  void on_exit() override { order_.reset(); } // memory goes before the runtime does

private:
  void ask_next() {
    const client_work& work = *order_->work;
    std::size_t slot = asked_ % work.slots.size();
    if (!free_.empty()) {
      slot = free_.back();
      free_.pop_back();
    }
    const std::vector<operation>& what = work.slots[slot];
    const std::size_t number = asked_++;
    ++in_flight_;
    const time_point since = steady::now();
    if (work.whom)
      await(compat::request_unbounded(
                this, world_.collective(*work.whom),
                rank_request{.what = what.front(),
                             .epoch = order_->meant_for,
                             .lane = work.lanes.empty() ? lane{} : work.lanes[number % work.lanes.size()]}),
            slot, since);
    else
      await(compat::request_unbounded(this, world_.actor(), world_request{what, order_->meant_for}), slot, since);
  }

  template <class Response>
  void await(Response&& reply, std::size_t slot, time_point since) {
    std::forward<Response>(reply).then([this, slot, since](const completion&) { replied(slot, since); },
                                       [this, slot, since](const caf::error& failure) {
                                         if (!order_->failure) order_->failure = from_caf(failure);
                                         order_->total = asked_; // no more of this
                                         replied(slot, since);
                                       });
  }

  void replied(std::size_t slot, time_point since) {
    order_->times.push_back({since, steady::now()});
    --in_flight_;
    if (order_->work->slots.size() >= order_->depth) free_.push_back(slot);
    if (asked_ < order_->total) ask_next();
    if (in_flight_ > 0) return;
    const auto missing = order_->missing;
    order_.reset(); // before its owner looks at it
    if (missing->fetch_sub(1, std::memory_order_acq_rel) == 1) missing->notify_all();
  }

  world world_;
  std::shared_ptr<client_order> order_;
  std::vector<std::size_t> free_; ///< Slots; where there are too few, they are shared and this stays empty.
  std::size_t asked_ = 0;
  std::size_t in_flight_ = 0;
};

} // namespace

class client_crew::member {
public:
  member(caf::actor_system& system, const world& where) : actor_{system.spawn<bench_client>(where)} {}
  member(const member&) = delete;
  member& operator=(const member&) = delete;
  ~member() { compat::post(actor_, end_client{}); }

  void begin(std::shared_ptr<client_order> order) { compat::post(actor_, begin_round{std::move(order)}); }

private:
  client_handle actor_;
};

client_crew::client_crew(caf::actor_system& system, const world& where, std::size_t size) : world_{where} {
  for (std::size_t i = 0; i < size; ++i) members_.push_back(std::make_unique<member>(system, where));
}

client_crew::~client_crew() = default;

std::vector<std::vector<request_times>> client_crew::run(const std::vector<std::shared_ptr<const client_work>>& work,
                                                         std::size_t total, std::size_t depth) {
  if (work.size() != members_.size() || total == 0 || depth == 0)
    throw exception{errc::internal, "a crew of " + std::to_string(members_.size()) + " was given work for " +
                                        std::to_string(work.size()) + ", " + std::to_string(total) + " times, " +
                                        std::to_string(depth) + " in flight"};
  const auto missing = std::make_shared<std::atomic<std::size_t>>(members_.size());
  std::vector<std::shared_ptr<client_order>> orders;
  for (const auto& one : work)
    orders.push_back(std::make_shared<client_order>(client_order{.work = one,
                                                                 .meant_for = world_.epoch(),
                                                                 .total = total,
                                                                 .depth = depth,
                                                                 .times = {},
                                                                 .failure = {},
                                                                 .missing = missing}));
  for (std::size_t i = 0; i < orders.size(); ++i) members_[i]->begin(orders[i]);
  for (std::size_t left = 0; (left = missing->load(std::memory_order_acquire)) > 0;) missing->wait(left);
  std::vector<std::vector<request_times>> times;
  for (const auto& one : orders) {
    if (one->failure) throw exception{one->failure};
    times.push_back(std::move(one->times));
  }
  return times;
}

nanoseconds span_of(const std::vector<std::vector<request_times>>& times) {
  time_point first = time_point::max();
  time_point last = time_point::min();
  for (const auto& client : times)
    for (const request_times& one : client) {
      first = std::min(first, one.asked);
      last = std::max(last, one.replied);
    }
  return first < last ? last - first : nanoseconds{0};
}

void register_client_messages() {
  TROUPE_REGISTER_LOCAL_TYPES(troupe_bench);
}

} // namespace troupe::program
