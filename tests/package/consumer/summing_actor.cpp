#include "summing_actor.hpp"

#include <memory>
#include <optional>
#include <utility>

struct sum_request;

TROUPE_LOCAL_TYPES_AFTER(consumer, troupe)
TROUPE_LOCAL_TYPE(consumer, sum_request)
TROUPE_LOCAL_TYPES_END(consumer)

struct sum_request {
  std::vector<troupe::buffer> values;
  std::size_t count = 0;
};

namespace {

using summing_handle = troupe::typed_actor<caf::result<void>(sum_request)>;

/// Serves one order and ends. It tells the outcome when it has ended, for a runtime must outlive its actors.
class summing_actor final : public summing_handle::base {
public:
  summing_actor(caf::actor_config& settings, troupe::world where, std::promise<troupe::completion> told)
    : summing_handle::base{settings}, world_{std::move(where)}, told_{std::move(told)} {}

  behavior_type make_behavior() override {
    return {[this](const sum_request& request) { ask(request); }};
  }

  void on_exit() override {
    if (const troupe::error* failure = troupe::failure_of(outcome_))
      told_.set_exception(std::make_exception_ptr(troupe::exception{*failure}));
    else
      told_.set_value(std::get<troupe::completion>(outcome_));
  }

private:
  void ask(const sum_request& request) {
    troupe::request_builder requests{world_.status()};
    troupe::request_unbounded(
        this, troupe::actor_of(world_),
        requests.all_reduce(request.values, request.values, request.count, troupe::dtype::f32, troupe::reduction::sum))
        .then([this](const troupe::completion& reply) { end(reply); },
              [this](const caf::error& failure) { end(troupe::from_caf(failure)); });
  }

  void end(troupe::outcome how) {
    outcome_ = std::move(how);
    quit();
  }

  troupe::world world_;
  std::promise<troupe::completion> told_;
  troupe::outcome outcome_ = troupe::error{.code = troupe::errc::abandoned, .text = "the actor ended unasked"};
};

} // namespace

void register_summing_messages() {
  TROUPE_REGISTER_LOCAL_TYPES(consumer);
}

std::future<troupe::completion> sum_with_actor(caf::actor_system& system, const troupe::world& where,
                                               std::vector<troupe::buffer> values, std::size_t count) {
  std::promise<troupe::completion> told;
  auto reply = told.get_future();
  const summing_handle actor = system.spawn<summing_actor>(where, std::move(told));
  troupe::post(actor, sum_request{std::move(values), count});
  return reply;
}
