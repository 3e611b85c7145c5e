/// Who asks in a benchmark: actors by messages, or plain threads through the facade; the world, or each rank by a
/// client of its own.
#pragma once

#include <troupe/program/bench/bench_client.hpp>

#include <troupe/runtime/world.hpp>

#include <caf/fwd.hpp>

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace troupe::program {

/// What one series of requests took.
struct series {
  nanoseconds all{0};              ///< From the first request to the last reply seen.
  std::vector<nanoseconds> each{}; ///< From each request to its reply, as its asker saw it.
  /// Where each rank is asked by itself: for one operation after the other, or, with several in flight of a thread, for
  /// so many together, from the first rank's asking to the last rank's reply.
  std::vector<nanoseconds> spans{};
};

/// Asks one world the same thing again and again.
class asker {
public:
  asker() = default;
  asker(const asker&) = delete;
  asker& operator=(const asker&) = delete;
  virtual ~asker() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Asks \p total times, \p depth requests in flight. Throws the first error.
  [[nodiscard]] virtual series ask(const std::vector<operation>& parts, std::size_t total, std::size_t depth) = 0;
};

/// Spins for its replies: a parked thread would be measured instead.
[[nodiscard]] std::unique_ptr<asker> make_thread_asker(world where);
[[nodiscard]] std::unique_ptr<asker> make_actor_asker(caf::actor_system& system, world where);

/// An actor for each rank, in the lane \p in of its own: each asks again as soon as it is answered, so that the ranks
/// keep step by their operations alone.
[[nodiscard]] std::unique_ptr<asker> make_rank_actor_asker(caf::actor_system& system, world where, lane in);
/// A spinning thread for each rank, all released by one atomic for each operation.
[[nodiscard]] std::unique_ptr<asker> make_rank_thread_asker(world where, lane in);

} // namespace troupe::program
