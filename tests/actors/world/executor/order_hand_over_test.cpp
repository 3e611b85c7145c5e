// Orders that pass on what a planned change holds: which one clients ask meanwhile.
#include "actors/world/executor/part_scene.hpp"

#include <troupe/actors/world/executor/order_hand_over.hpp>

#include <catch2/catch_test_macros.hpp>

namespace troupe::tests::order_hand_over_test {

namespace {

/// An order that passes on what it holds when the test lets it.
class passing_order final : public kept_order {
public:
  std::shared_ptr<latch> close(error why, bool) override {
    closed.push_back(why.code);
    return nullptr;
  }
  void hand_over(std::shared_ptr<world_order> next, rank self, operation_check check, error why,
                 std::function<void()> done) override {
    to = std::move(next);
    of = self;
    accepts = std::move(check);
    refusal = why.code;
    end = std::move(done);
  }

  std::vector<errc> closed;
  std::shared_ptr<world_order> to;
  rank of;
  operation_check accepts;
  errc refusal = errc::none;
  std::function<void()> end;
};

const error changed{.code = errc::rebuilding};

} // namespace

TEST_CASE("clients ask the oldest of the orders that pass on what they held", "[actors][executor][change]") {
  part_scene one;
  order_hand_over orders{one.context()};
  CHECK_FALSE(orders.entrance());
  const auto first = std::make_shared<passing_order>();
  const auto second = std::make_shared<passing_order>();
  orders.begin(first, changed);
  orders.begin(second, changed);
  CHECK(orders.entrance() == first);
  CHECK(first->to == one.order);
  CHECK(first->of == rank{0});
  CHECK(first->refusal == errc::rebuilding);
  CHECK_FALSE(orders.on_end());
  CHECK(orders.entrance() == first);
  CHECK(orders.on_end());
  CHECK_FALSE(orders.entrance());
}

TEST_CASE("the end of a hand-over is posted to the world, and what it passes on is checked for the next epoch",
          "[actors][executor][change]") {
  part_scene one;
  order_hand_over orders{one.context()};
  const auto from = std::make_shared<passing_order>();
  orders.begin(from, changed);
  CHECK_FALSE(from->accepts(barrier{}));
  send to_nobody;
  to_nobody.peer = rank{7};
  CHECK(from->accepts(to_nobody).code == errc::invalid_argument);
  from->end();
  const auto told = one.take<rank_report>();
  CHECK(told.what == rank_report::kind::handed_over);
  CHECK(told.epoch == epoch{1});
  CHECK_FALSE(told.failure);
}

TEST_CASE("an order that is kept is taken or refused once", "[actors][executor][change]") {
  part_scene one;
  order_hand_over orders{one.context()};
  const auto held = std::make_shared<passing_order>();
  orders.refuse(changed);
  CHECK_FALSE(orders.take());
  orders.keep(held);
  CHECK(orders.take() == held);
  orders.refuse(changed);
  CHECK(held->closed.empty());
  orders.keep(held);
  orders.refuse({.code = errc::stopping});
  orders.refuse(changed);
  CHECK(held->closed == std::vector<errc>{errc::stopping});
}

} // namespace troupe::tests::order_hand_over_test
