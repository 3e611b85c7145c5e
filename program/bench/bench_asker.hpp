/// Ways to send requests in a benchmark: from actors by messages or from plain threads through the facade, and to the
/// world or, with one client per rank, to each rank.
#pragma once

#include <troupe/program/bench/bench_client.hpp>

#include <troupe/runtime/world.hpp>

#include <caf/fwd.hpp>

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace troupe::program {

/// The times of one series of requests.
struct series {
  nanoseconds all{0};              ///< From the first request to the last reply seen.
  std::vector<nanoseconds> each{}; ///< From each request to its reply, as the client saw it.
  /// Filled where each rank has a client of its own: from the first rank's request to the last rank's reply. Each entry
  /// is for one operation; where a thread keeps several in flight, for one batch of them.
  std::vector<nanoseconds> spans{};
};

/// Sends the same request to one world repeatedly.
class asker {
public:
  asker() = default;
  asker(const asker&) = delete;
  asker& operator=(const asker&) = delete;
  virtual ~asker() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Sends \p total requests with up to \p depth in flight. Throws the first error.
  [[nodiscard]] virtual series ask(const std::vector<operation>& parts, std::size_t total, std::size_t depth) = 0;
};

/// Spins while it waits for replies. A parked thread would add its wake-up time to the figures.
[[nodiscard]] std::unique_ptr<asker> make_thread_asker(world where);
[[nodiscard]] std::unique_ptr<asker> make_actor_asker(caf::actor_system& system, world where);

/// Runs one actor per rank, all in lane \p in. Each actor sends its next request as soon as the last one is answered,
/// so only the operations themselves keep the ranks in step.
[[nodiscard]] std::unique_ptr<asker> make_rank_actor_asker(caf::actor_system& system, world where, lane in);
/// Runs one spinning thread per rank. One atomic releases all of them for each operation.
[[nodiscard]] std::unique_ptr<asker> make_rank_thread_asker(world where, lane in);

} // namespace troupe::program
