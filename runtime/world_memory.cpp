// Implements the memory functions of a world: allocation, copies from and to host memory, registration, suspension.
#include <troupe/actors/world/request_gate.hpp>
#include <troupe/runtime/interop/ask_into.hpp>
#include <troupe/runtime/world.hpp>
#include <troupe/runtime/world_core.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

buffer world::allocate(rank where, std::size_t size_bytes) const {
  return core_->pools[core_->place_of(where)]->allocate(size_bytes);
}

std::size_t world::release_unused() const {
  std::size_t released_bytes = 0;
  for (const auto& pool : core_->pools) released_bytes += pool->release_unused();
  return released_bytes;
}

buffer world::allocate_pinned(std::size_t size_bytes) const {
  return troupe::allocate_pinned(core_->pools.front()->where(), size_bytes);
}

buffer world::adopt_host(void* address, std::size_t size_bytes, std::shared_ptr<void> owner) const {
  const auto& where = core_->pools.front()->where();
  buffer adopted = troupe::adopt_host(where, address, size_bytes, std::move(owner));
  if (adopted.kind() == memory_kind::pageable) core_->staging->reserve_pinned(where, core_->pools.size());
  return adopted;
}

remote_buffer world::export_memory(rank where, buffer memory, const std::string& name) const {
  static_cast<void>(core_->place_of(where)); // refuses a rank of another process
  return core_->exported->add(where, std::move(memory), name);
}

std::future<remote_buffer> world::find_memory(rank target, const std::string& name, nanoseconds deadline) const {
  auto [reply, future] = make_value_promise<remote_buffer>();
  find_memory(target, name, deadline, std::move(reply));
  return std::move(future);
}

void world::find_memory(rank target, const std::string& name, nanoseconds deadline,
                        std::shared_ptr<value_promise<remote_buffer>> reply) const {
  core_->status->gate()->find(target, name, deadline, std::move(reply));
}

void world::unexport(const remote_buffer& exported) const {
  core_->exported->remove(exported);
}

const std::shared_ptr<device>& world::device_of(rank where) const {
  return core_->pools[core_->place_of(where)]->where();
}

buffer world::host_copy(std::span<const std::byte> from) const {
  const auto bytes = std::make_shared<std::vector<std::byte>>(from.begin(), from.end());
  return adopt_host(bytes->data(), bytes->size(), bytes);
}

void world::refuse_size(std::size_t size_bytes, std::size_t element_bytes) {
  throw exception{errc::invalid_argument, std::to_string(size_bytes) + " bytes are not a whole number of elements of " +
                                              std::to_string(element_bytes) + " bytes each"};
}

// NOLINTNEXTLINE(readability-make-member-function-const): requests change the world
void world::exchange(rank target, operand from, operand to, reply_promise&& reply, request_options options,
                     call_site site) {
  const bool reads = is_remote(from.memory);
  bool is_here = false;
  std::optional<rank> first{};
  int world_size = 0;
  core_->own_status().peek([&](const world_event& now) {
    if (options.epoch == troupe::epoch{}) options.epoch = now.epoch;
    is_here = std::ranges::find(now.local_ranks, target) != now.local_ranks.end();
    if (!now.local_ranks.empty()) first = now.local_ranks.front();
    world_size = now.world_size;
  });
  if (is_here)
    return ask_into(*this, target, troupe::make_request(troupe::copy{std::move(from), std::move(to)}, options, site),
                    std::move(reply));
  if (!first || (!reads && !is_remote(to.memory)))
    throw exception{errc::invalid_argument, "rank " + to_string(target) +
                                                " does not live in this process: name memory that its process has "
                                                "exported (world::find_memory())"};
  const rank self = *first;
  const std::size_t count = from.memory.size_bytes();
  std::vector<operation> parts = transfer_parts(world_size, reads ? target : self, std::move(from),
                                                reads ? self : target, std::move(to), count, dtype::u8, 0);
  ask_into(*this, troupe::make_request(std::move(parts), std::move(options), site), std::move(reply));
}

std::future<completion> world::write_bytes(rank target, std::span<const std::byte> from, operand to,
                                           request_options options, call_site site) {
  auto [reply, future] = make_future_promise();
  exchange(target, host_copy(from), std::move(to), std::move(reply), std::move(options), site);
  return std::move(future);
}

void world::write(rank target, std::span<const std::byte> from, operand to, reply_promise reply,
                  request_options options, call_site site) {
  try {
    exchange(target, host_copy(from), std::move(to), std::move(reply), std::move(options), site);
  } catch (const exception& failure) {
    reply.deliver(failure.why());
  }
}

void world::read_into(rank target, operand from, void* to, std::shared_ptr<void> owner, reply_promise&& reply,
                      request_options options, call_site site) {
  buffer into = adopt_host(to, from.memory.size_bytes(), std::move(owner));
  exchange(target, std::move(from), std::move(into), std::move(reply), std::move(options), site);
}

void world::read(rank target, operand from, std::shared_ptr<value_promise<std::vector<std::byte>>> reply,
                 request_options options, call_site site) {
  const auto into = make_elements<std::byte>(from.memory.size_bytes());
  auto promise = make_reply_promise([into, reply = std::move(reply)](outcome result) {
    if (const error* const failure = failure_of(result))
      reply->deliver(*failure);
    else
      reply->deliver(std::move(*into));
  });
  try {
    read_into(target, std::move(from), into->data(), into, std::move(promise), std::move(options), site);
  } catch (const exception& failure) {
    promise.deliver(failure.why());
  }
}

void world::register_memory(std::size_t size_bytes) {
  auto [reply, future] = make_value_promise<registration_reply>();
  post_request(core_->own_actor(), registration_request{size_bytes, epoch()}, std::move(reply));
  auto pool = future.get().pool;
  const std::lock_guard lock{core_->registered_guard};
  core_->registered.swap(pool); // the earlier one is released without the lock
}

per_rank<buffer> world::allocate_all(std::size_t size_bytes) const {
  std::shared_ptr<registered_pool> pool;
  {
    const std::lock_guard lock{core_->registered_guard};
    pool = core_->registered;
  }
  const std::vector<rank> ranks = local_ranks();
  if (pool) {
    try {
      return {pool->allocate(size_bytes), ranks.empty() ? rank{0} : ranks.front()};
    } catch (const exception& failure) { // the registered memory is full: the ranks' pools are used instead
      if (failure.why().code != errc::out_of_memory) throw;
    }
  }
  return {ranks, [&](rank self) { return allocate(self, size_bytes); }};
}

registered_memory_status world::registered_memory() const {
  const std::lock_guard lock{core_->registered_guard};
  if (!core_->registered) return {.why_ordinary = "no memory has been registered: call register_memory()"};
  return {core_->registered->size_bytes(), core_->registered->free_bytes(), core_->registered->why_ordinary()};
}

std::vector<std::size_t> world::suspend() {
  auto [reply, future] = make_value_promise<suspension_reply>();
  post_request(core_->own_actor(), suspension_request{epoch()}, std::move(reply));
  return future.get().bytes;
}

void world::resume() {
  auto [reply, future] = make_value_promise<resumption_reply>();
  post_request(core_->own_actor(), resumption_request{}, std::move(reply));
  static_cast<void>(future.get());
}

} // namespace troupe
