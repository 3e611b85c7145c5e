/// Defines the actors: a trainer, a publisher and rollouts. Each has a thread of its own, so it may wait for replies.
#pragma once

#include "cast.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

/// Drives all training ranks. A step is one all_reduce, to which the first rank contributes the weights and the others
/// their changes to them.
inline void train(caf::blocking_actor* self, stage* where, ledger* books, const caf::actor& publisher) try {
  troupe::world& trainers = where->trainers;
  std::vector<std::uint32_t> values(where->count);
  std::vector<troupe::buffer> shares; // each rank's change; for the first rank, the present weights
  std::vector<troupe::buffer> sums;   // for the first rank, the same buffer as in shares
  for (const troupe::rank one : trainers.local_ranks()) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = share_of(one.value(), i); // 0: the first weights
    shares.push_back(trainers.allocate(one, where->bytes()));
    trainers.write(one, values, shares.back()).get();
    sums.push_back(one.value() == 0 ? shares.back() : trainers.allocate(one, where->bytes()));
  }
  version done = 0;
  // The last step is one that is published, so that every rollout must receive the last version.
  for (bool is_finishing = false; !is_finishing || done % where->publish_every != 0;) {
    trainers.all_reduce(shares, sums, where->count, troupe::dtype::u32, troupe::reduction::sum).get();
    ++done;
    ++books->steps;
    if (done % where->publish_every == 0) { // publishes a copy, because the next step changes the weights
      const troupe::buffer copied = trainers.allocate(troupe::rank{0}, where->bytes());
      trainers.copy(troupe::rank{0}, sums.front(), copied).get();
      troupe::post(publisher, snapshot{done, copied});
    }
    hear(self, false, [&](const finish&) { is_finishing = true; });
  }
} catch (const troupe::exception& failure) {
  // examples/training_orchestrator shows how a trainer can recover.
  std::fprintf(stderr, "training ends: %s\n", failure.what());
  ++books->wrong;
}

/// Broadcasts all chunks and returns whether all have arrived. The chunks are requested at once, but each is a separate
/// launch, so that launches of other worlds can run between them.
inline bool broadcast(stage& where, version which, const std::vector<troupe::buffer>& memory, troupe::epoch epoch) try {
  std::vector<std::future<troupe::completion>> chunks;
  for (std::size_t from = 0; from < where.count; from += where.chunk) {
    const std::size_t count = std::min(where.chunk, where.count - from);
    std::vector<troupe::buffer> parts; // indexed by rank among the carriers; rank 0's part is the source
    for (const troupe::buffer& one : memory)
      parts.push_back(one.slice(from * sizeof(std::uint32_t), count * sizeof(std::uint32_t)));
    chunks.push_back(
        where.carriers.broadcast(parts.front(), parts, count, troupe::dtype::u32, troupe::rank{0}, {.epoch = epoch}));
  }
  for (auto& one : chunks) one.get();
  return true;
} catch (const troupe::exception& failure) {
  std::printf("  version %u was not broadcast: %s\n", which, failure.what());
  return false;
}

/// Broadcasts the newest version while the trainers take steps, and repeats a failed broadcast.
inline void publish(caf::blocking_actor* self, stage* where, ledger* books,
                    const std::vector<caf::actor>& rollouts) try {
  troupe::world& carriers = where->carriers;
  const auto listener = caf::actor_cast<troupe::listener_handle>(caf::actor{self});
  troupe::post(troupe::actor_of(carriers), troupe::subscribe{listener});
  troupe::world_event now;
  troupe::epoch failed_in{};
  std::optional<snapshot> newest;
  const auto is_due = [&] { return newest && now.phase == troupe::world_phase::ready && now.epoch != failed_in; };
  for (bool is_finishing = false; !is_finishing || newest;) {
    hear(
        self, !is_due(), [&](const troupe::world_event& event) { now = event; },
        [&](const snapshot& next) { newest = next; }, // replaces a version whose broadcast has not begun
        [&](const finish&) { is_finishing = true; });
    if (now.phase == troupe::world_phase::failed) throw troupe::exception{now.reason};
    if (!is_due()) continue;
    // New memory each time: no rollout reads it yet, and no operation of a failed broadcast writes to it.
    std::vector<troupe::buffer> memory{newest->memory};
    for (int i = 1; i < carriers.size(); ++i) memory.push_back(carriers.allocate(troupe::rank{i}, where->bytes()));
    if (broadcast(*where, newest->which, memory, now.epoch)) {
      for (std::size_t i = 0; i < rollouts.size(); ++i)
        troupe::post(rollouts[i], snapshot{newest->which, memory[i + 1]});
      ++books->published;
      books->last = newest->which;
      books->is_broken = false;
      newest.reset();
    } else {
      ++books->broken;
      books->is_broken = true;
      failed_in = now.epoch; // in the next epoch, this version or a newer one is broadcast
    }
  }
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "broadcasts end: %s\n", failure.what());
  ++books->wrong;
}

/// Serves one request after another with its present version, and switches to a new version between requests.
inline void serve(caf::blocking_actor* self, stage* where, ledger* books, troupe::rank mine) try {
  const int trainers = where->trainers.size();
  const troupe::buffer seen = where->whole.allocate_pinned(where->bytes());
  const auto values = seen.host_span<std::uint32_t>();
  snapshot current;
  version served = 0; // the version of the last served request
  troupe::time_point replied;
  for (bool is_finishing = false; !is_finishing || served != current.which;) {
    // A new snapshot releases the old version's memory to its pool, because no request uses it any more.
    hear(
        self, current.which == 0, [&](const snapshot& next) { current = next; },
        [&](const finish&) { is_finishing = true; });
    if (current.which == 0) continue;
    // A real rollout would generate with the weights here. This one verifies all of them.
    where->whole.copy(mine, current.memory, seen).get();
    bool is_right = true;
    for (std::size_t i = 0; i < values.size(); ++i)
      is_right = is_right && values[i] == expected(current.which, trainers, i);
    if (!is_right) ++books->wrong;
    ++books->served;
    if (books->is_broken) ++books->served_while_broken;
    const troupe::time_point now = std::chrono::steady_clock::now();
    const std::int64_t pause = served == 0 ? 0 : (now - replied).count();
    for (std::int64_t longest = books->longest_pause_ns; pause > longest;)
      if (books->longest_pause_ns.compare_exchange_weak(longest, pause)) break;
    replied = now;
    served = current.which;
  }
  if (served != books->last) ++books->wrong;
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "a rollout ends: %s\n", failure.what());
  ++books->wrong;
}
