#include <troupe/actors/rank/collective_state.hpp>
#include <troupe/actors/world/request_gate.hpp>
#include <troupe/runtime/interop/ask_into.hpp>
#include <troupe/runtime/world_core.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

struct resume_queue::state {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<continuation> waiting;
  bool closed = false;
};

resume_queue::resume_queue() : state_{std::make_unique<state>()} {}
resume_queue::~resume_queue() = default;

void resume_queue::post(continuation next) {
  // Notifies under the lock: once the continuation has run, the queue's owner may destroy it.
  const std::lock_guard lock{state_->mutex};
  state_->waiting.push_back(std::move(next));
  state_->changed.notify_one();
}

void resume_queue::run() {
  std::unique_lock lock{state_->mutex};
  while (true) {
    state_->changed.wait(lock, [this] { return state_->closed || !state_->waiting.empty(); });
    if (state_->waiting.empty()) return;
    {
      const continuation next = std::move(state_->waiting.front());
      state_->waiting.pop_front();
      lock.unlock();
      next();
    } // may be the last owner of what it continues with, whose end may post another one
    lock.lock();
  }
}

void resume_queue::close() {
  const std::lock_guard lock{state_->mutex};
  state_->closed = true;
  state_->changed.notify_all(); // under the lock, as in post()
}

world_request make_request(const world& where, std::vector<operation>&& parts, request_options options,
                           call_site from) {
  if (options.epoch == epoch{}) options.epoch = where.epoch();
  return make_request(std::move(parts), std::move(options), from);
}

void ask_into(const world& where, world_request asked, reply_promise&& to) {
  core_of(where).status->gate()->accept(std::move(asked), std::move(to));
}

void ask_into(const world& where, rank target, rank_request asked, reply_promise&& to, std::uint64_t client) {
  const world::core& all = core_of(where);
  if (all.made.is_inherited()) return to.deliver(used_in_fork("this world"));
  troupe::epoch current{};
  const std::optional<std::size_t> place = all.status->peek([&](const world_event& now) -> std::optional<std::size_t> {
    current = now.epoch;
    const auto has = [target](const std::vector<rank>& ranks) {
      return std::ranges::find(ranks, target) != ranks.end();
    };
    // Ranks may be renumbered in another epoch, so a stale request is refused as stale, not because \p target is
    // unknown.
    const bool is_stale = asked.epoch == epoch{} ? has(all.local_ranks) : asked.epoch != now.epoch;
    if (is_stale && !has(now.local_ranks)) return std::nullopt;
    return all.place_of(target, now);
  });
  if (!place) return to.deliver(stale_epoch_error(asked.epoch, current));
  all.ranks->state_of(*place).accept(std::move(asked), std::move(to), client);
}

std::uint64_t next_client() noexcept {
  // Clients that are actors have CAF's actor ids, which count from 1.
  static std::atomic<std::uint64_t> next{std::uint64_t{1} << 63};
  return next.fetch_add(1, std::memory_order_relaxed);
}

void leave_lanes(const world& where, rank target, std::uint64_t client) noexcept {
  try {
    const world::core& all = core_of(where);
    all.ranks->state_of(all.place_of(target))
        .forget(client, {.code = errc::cancelled, .text = "its client has left the lane"});
  } catch (...) { // the rank has left, or a message cannot be allocated: the client's requests are answered in any case
  }
}

void take_back(const world& where, rank target, lane which, std::uint64_t position, epoch of) noexcept {
  try {
    const world::core& all = core_of(where);
    all.ranks->state_of(all.place_of(target)).cancel({which, position, of});
  } catch (...) { // the world has ended, or a message cannot be allocated: the request is answered in any case
  }
}

} // namespace troupe
