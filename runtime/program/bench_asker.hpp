/// Who asks in a benchmark: an actor by messages, or a plain thread through the facade.
#pragma once

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
/// Before the runtime whose system is passed.
void register_asker_messages();
[[nodiscard]] std::unique_ptr<asker> make_actor_asker(caf::actor_system& system, world where);

} // namespace troupe::program
