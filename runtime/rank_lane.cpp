#include <troupe/collectives/operation/collective_methods_definitions.hpp>
#include <troupe/runtime/interop/ask_into.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/world_core.hpp>

#include <algorithm>
#include <memory>
#include <utility>

namespace troupe {

rank_lane::rank_lane(world where, rank target, lane which)
  : world_{std::move(where)},
    target_{target},
    place_{core_of(world_).place_of(target)},
    lane_{which},
    client_{next_client()} {}

rank_lane::rank_lane(rank_lane&& other) noexcept
  : world_{other.world_}, // NOLINT(performance-move-constructor-init): a lane that was moved from keeps its world
    target_{other.target_},
    place_{other.place_},
    lane_{other.lane_},
    acknowledged_{other.acknowledged_},
    credit_{std::move(other.credit_)},
    client_{std::exchange(other.client_, 0)} {}

rank_lane& rank_lane::operator=(rank_lane&& other) noexcept {
  if (this == &other) return *this;
  leave();
  world_ = other.world_;
  target_ = other.target_;
  place_ = other.place_;
  lane_ = other.lane_;
  acknowledged_ = other.acknowledged_;
  credit_ = std::move(other.credit_);
  client_ = std::exchange(other.client_, 0);
  return *this;
}

rank_lane::~rank_lane() {
  leave();
}

void rank_lane::post(operation what, request_options options, call_site from, reply_promise reply) {
  if (options.epoch == epoch{}) options.epoch = acknowledged_;
  if (!options.credit) options.credit = credit_;
  rank_request asked = make_request(std::move(what), std::move(options), from);
  asked.lane = lane_;
  core_of(world_).ranks->state_of(place_).accept(std::move(asked), std::move(reply), client_);
}

std::future<completion> rank_lane::ask(operation what, request_options options, call_site from) {
  auto [reply, future] = make_future_promise();
  post(std::move(what), std::move(options), from, std::move(reply));
  return std::move(future);
}

overlapped rank_lane::ask_overlapped(operation what, request_options options, call_site from) {
  auto [reply, futures] = make_overlapped(1);
  post(std::move(what), std::move(options), from, std::move(reply));
  return std::move(futures);
}

std::future<completion> rank_lane::send(operand memory, std::size_t count, dtype type, rank peer, int tag,
                                        request_options options, call_site from) {
  return ask(troupe::send{std::move(memory), count, type, peer, tag}, std::move(options), from);
}

std::future<completion> rank_lane::recv(operand memory, std::size_t count, dtype type, rank peer, int tag,
                                        request_options options, call_site from) {
  return ask(troupe::recv{std::move(memory), count, type, peer, tag}, std::move(options), from);
}

std::future<completion> rank_lane::copy(operand source, operand destination, request_options options, call_site from) {
  return ask(troupe::copy{std::move(source), std::move(destination)}, std::move(options), from);
}

rank rank_lane::rank_in(const world_event& now) const {
  const rank origin = core_of(world_).local_ranks[place_];
  const auto found = std::ranges::find(now.origins, origin);
  if (found == now.origins.end())
    throw exception{errc::rank_lost,
                    "rank " + to_string(origin) + " (as numbered in the first epoch) has left the world"};
  return now.local_ranks[static_cast<std::size_t>(found - now.origins.begin())];
}

void rank_lane::cancel(std::uint64_t position) {
  core_of(world_).ranks->state_of(place_).cancel({lane_, position, acknowledged_});
}

void rank_lane::leave() noexcept {
  if (client_ == 0) return;
  try {
    core_of(world_).ranks->state_of(place_).forget(client_,
                                                   {.code = errc::cancelled, .text = "its client has left the lane"});
  } catch (...) { // no memory for the message: the client's requests are answered in any case
  }
}

template class collective_methods<rank_lane, arguments_of_one, std::future<completion>>;

} // namespace troupe
