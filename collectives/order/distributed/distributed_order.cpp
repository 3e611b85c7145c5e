#include <troupe/collectives/order/distributed/distributed_order.hpp>

#include <troupe/collectives/order/distributed/order_connection.hpp>
#include <troupe/collectives/order/distributed/ordered_rank.hpp>

#include <utility>

namespace troupe {

void distributed_order::ask(rank, lane_request asked) {
  through_->ask(self_, std::move(asked));
}

void distributed_order::cancel(rank, lane where, std::uint64_t position) {
  through_->write(self_, {.kind = request_record::form::cancel, .where = where, .position = position});
}

void distributed_order::withdraw(rank, std::uint64_t client, error why) {
  through_->write(self_, {.kind = request_record::form::withdraw, .client = client, .why = std::move(why)});
}

void distributed_order::turn(turn_terms asked, turn_work work) {
  through_->ask_turn(self_, std::move(asked), std::move(work), {});
}

void distributed_order::capture(std::string name, nanoseconds deadline, nanoseconds limit, capture_start start) {
  through_->ask_turn(self_, {.name = std::move(name), .deadline = deadline, .capture_limit = limit}, {},
                     std::move(start));
}

void distributed_order::set_registered(std::vector<std::shared_ptr<registered_pool>> pools) {
  through_->set_registered(self_, std::move(pools));
}

std::shared_ptr<distributed_order> distributed_order::open_world(std::uint64_t number,
                                                                 std::shared_ptr<rank_pipeline> pipeline) {
  return through_->open(number, std::move(pipeline));
}

std::shared_ptr<latch> distributed_order::leave(error why) {
  through_->leave(self_, std::move(why), true);
  return self_->over;
}

std::shared_ptr<latch> distributed_order::close(error why, bool for_good) {
  if (self_->world == 0)
    through_->close(std::move(why));
  else
    through_->leave(self_, std::move(why), for_good);
  return self_->over;
}

const std::shared_ptr<peer_requests>& distributed_order::peers() const noexcept {
  return self_->peers;
}

std::size_t distributed_order::waiting() const {
  return through_->waiting();
}

} // namespace troupe
