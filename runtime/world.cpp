#include <troupe/runtime/world.hpp>
#include <troupe/runtime/world_core.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

world::world(std::shared_ptr<core> shared) noexcept : core_{std::move(shared)} {}

int world::size() const {
  return core_->world_size;
}

const std::vector<rank>& world::local_ranks() const {
  return core_->local_ranks;
}

epoch world::epoch() const {
  return core_->board->latest().epoch;
}

world_event world::status() const {
  return core_->board->latest();
}

void world::on_event(std::function<void(const world_event&)> heard) {
  core_->board->listen(std::move(heard));
}

std::size_t world::index_of(rank whom) const {
  const auto& ranks = core_->local_ranks;
  const auto found = std::ranges::find(ranks, whom);
  if (found == ranks.end())
    throw exception{errc::invalid_argument, "rank " + to_string(whom) +
                                                " does not live in this process: its ranks are " +
                                                to_string(ranks.front()) + " to " + to_string(ranks.back())};
  return static_cast<std::size_t>(found - ranks.begin());
}

buffer world::allocate(rank where, std::size_t size_bytes) const {
  return core_->pools[index_of(where)]->allocate(size_bytes);
}

buffer world::allocate_pinned(std::size_t size_bytes) const {
  return troupe::allocate_pinned(core_->pools.front()->where(), size_bytes);
}

const std::shared_ptr<device>& world::device_of(rank where) const {
  return core_->pools[index_of(where)]->where();
}

std::future<completion> world::ask(std::vector<operation> parts, nanoseconds deadline) {
  return ask(world_request{std::move(parts), epoch(), deadline});
}

std::future<completion> world::ask(world_request asked) {
  auto [reply, future] = make_future_answer();
  compat::post(core_->actors.world, posted_world_request{std::move(asked), std::make_shared<answer>(std::move(reply))});
  return std::move(future);
}

std::future<completion> world::ask(rank whom, operation what, nanoseconds deadline) {
  return ask(whom, rank_request{std::move(what), epoch(), deadline});
}

std::future<completion> world::ask(rank whom, rank_request asked) {
  auto [reply, future] = make_future_answer();
  compat::post(collective(whom), posted_request{std::move(asked), std::make_shared<answer>(std::move(reply))});
  return std::move(future);
}

std::future<completion> world::all_reduce(std::span<const buffer> send, std::span<const buffer> recv, std::size_t count,
                                          dtype type, reduction op) {
  if (send.size() != recv.size())
    throw exception{errc::invalid_argument, "there are " + std::to_string(send.size()) + " send and " +
                                                std::to_string(recv.size()) +
                                                " recv buffers: give one of each per rank"};
  std::vector<operation> parts;
  for (std::size_t i = 0; i < send.size(); ++i)
    parts.emplace_back(troupe::all_reduce{send[i], recv[i], count, type, op});
  return ask(std::move(parts));
}

std::future<completion> world::barrier() {
  return ask(std::vector<operation>(local_ranks().size(), troupe::barrier{}));
}

std::future<completion> world::copy(rank whom, buffer from, buffer to) {
  return ask(whom, troupe::copy{std::move(from), std::move(to)});
}

world_handle world::actor() const {
  return core_->actors.world;
}

const collective_handle& world::collective(rank whom) const {
  return core_->actors.collectives[index_of(whom)];
}

void world::stop() {
  compat::post(core_->actors.world, stop_world{});
  const auto& limits = core_->deadlines;
  const nanoseconds longest = limits.form + 2 * limits.drain + limits.release + limits.abort;
  if (!core_->board->wait([](const world_event& event) { return event.phase == world_phase::stopped; }, longest))
    throw exception{errc::deadline_exceeded, "the world did not stop in time: " + describe(status())};
}

} // namespace troupe
