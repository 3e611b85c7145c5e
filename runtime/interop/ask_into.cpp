#include <troupe/actors/rank/collective_state.hpp>
#include <troupe/actors/world/request_gate.hpp>
#include <troupe/runtime/interop/ask_into.hpp>
#include <troupe/runtime/world_core.hpp>

#include <algorithm>
#include <memory>
#include <utility>

namespace troupe {

void ask_into(const world& where, world_request asked, reply_promise&& to) {
  core_of(where).status->gate()->accept(std::move(asked), std::move(to));
}

void ask_into(const world& where, rank whom, rank_request asked, reply_promise&& to, std::uint64_t client) {
  const world::core& all = core_of(where);
  const world_event now = all.status->latest();
  const auto has = [whom](const std::vector<rank>& ranks) { return std::ranges::find(ranks, whom) != ranks.end(); };
  // Ranks may be renumbered in another epoch, so a stale request is refused as stale, not because \p whom is unknown.
  const bool is_stale = asked.epoch == epoch{} ? has(all.local_ranks) : asked.epoch != now.epoch;
  if (is_stale && !has(now.local_ranks)) return to.deliver(stale_epoch_error(asked.epoch, now.epoch));
  const collective_inner_handle& door = all.ranks->at(all.place_of(whom, now));
  post_request(door, std::move(asked), std::move(to), client);
}

void take_back(const world& where, rank whom, lane which, std::uint64_t position, epoch of) noexcept {
  try {
    const world::core& all = core_of(where);
    compat::post(all.ranks->at(all.place_of(whom)), cancel_request{which, position, of});
  } catch (...) { // the world has ended, or there is no memory for a message: the request is answered in any case
  }
}

} // namespace troupe
