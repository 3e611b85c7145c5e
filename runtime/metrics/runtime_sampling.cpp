#include <troupe/runtime/metrics.hpp>
#include <troupe/runtime/metrics/metrics_endpoint.hpp>
#include <troupe/runtime/runtime_parts.hpp>
#include <troupe/runtime/world_core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe {

namespace {

void add(tally_reading& to, const tally_reading& more) {
  for (std::size_t kind = 0; kind < to.cells.size(); ++kind)
    for (std::size_t size = 0; size < to.cells[kind].size(); ++size) {
      tally_cell& cell = to.cells[kind][size];
      const tally_cell& other = more.cells[kind][size];
      cell.requests += other.requests;
      cell.bytes += other.bytes;
      cell.latency += other.latency;
      cell.queueing += other.queueing;
      for (std::size_t i = 0; i < cell.within.size(); ++i) cell.within[i] += other.within[i];
    }
  for (std::size_t code = 0; code < to.failed.size(); ++code) to.failed[code] += more.failed[code];
  to.launches += more.launches;
  to.launched += more.launched;
  to.ways.one_shot_launches += more.ways.one_shot_launches;
  to.ways.one_shot_operations += more.ways.one_shot_operations;
  to.ways.library_launches += more.ways.library_launches;
  to.ways.library_operations += more.ways.library_operations;
}

/// Matches records to ranks by device, because a renumbered rank has another record from then on.
std::vector<rank_reading> ranks_of(const world::core& one, const flight_recorder& recorder) {
  std::vector<rank_reading> ranks;
  for (const rank self : one.local_ranks) ranks.push_back({.origin = self, .tally = {}});
  const std::uint64_t world = one.status->world();
  for (const auto& line : recorder.lines()) {
    if (line->who().world != world) continue;
    for (std::size_t place = 0; place < ranks.size(); ++place) {
      if (one.pools[place]->where()->id() != line->who().where) continue;
      add(ranks[place].tally, line->tally().read());
      if (const auto progress = line->progress()) ranks[place].progress = progress; // later records come last
    }
  }
  return ranks;
}

world_reading sample_world(const world::core& one, const flight_recorder& recorder) {
  return {.number = one.status->world(),
          .status = one.status->latest(),
          .formed = one.formed,
          .history = one.history->read(),
          .pending = one.pending->now(),
          .pending_limit = one.pending->limits().operations,
          .ranks = ranks_of(one, recorder)};
}

} // namespace

runtime_reading runtime::parts::sample() const {
  runtime_reading seen{.version = TROUPE_VERSION,
                       .backend = std::string{selected.collectives->version()},
                       .driver = std::string{selected.api->version()},
                       .profile = std::string{to_string(wait.used)},
                       .started = began,
                       .poller = services.poller->load(),
                       .worlds = {}};
  for (const auto& one : worlds->all()) seen.worlds.push_back(sample_world(*one, *services.recorder));
  for (const auto& pool : services.staging->pools()) {
    try {
      seen.pools.push_back({pool->where()->id(), pool->usage()});
    } catch (const exception&) { // a failed device has no figures
    }
  }
  std::ranges::sort(seen.pools, {}, &pool_reading::where);
  return seen;
}

std::shared_ptr<prometheus::Collectable> make_collectable(const runtime& of) {
  return make_collectable(of.metrics());
}

} // namespace troupe
