/// Client actors: each asks the world, or one rank of it, again and again with some requests in flight.
#pragma once

#include <troupe/completion/reply/outcome.hpp>
#include <troupe/runtime/world.hpp>

#include <caf/fwd.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace troupe::program {

/// What one client asks for.
struct client_work {
  /// Asked of the world: slots[i] is all ranks' parts. Asked of a rank: slots[i] is the one operation.
  std::vector<std::vector<operation>> slots;
  std::optional<rank> whom{};
  /// Of a rank's requests, which take them in turn; empty: the lane without a name.
  std::vector<lane> lanes{};
};

/// When one request was sent, and when its sender saw the reply.
struct request_times {
  time_point asked;
  time_point replied;
  troupe::times between{}; ///< Of the reply, where there was one.
};

/// Before the runtime whose system is passed to a crew, once in a process.
void register_client_messages();

/// Some client actors that work at the same time. Lifetime: ends before its runtime.
class client_crew {
public:
  client_crew(caf::actor_system& system, const world& where, std::size_t size);
  client_crew(const client_crew&) = delete;
  client_crew& operator=(const client_crew&) = delete;
  ~client_crew();

  /// Client i asks for work[i] \p total times, \p depth requests in flight at most. A slot is used by one request at a
  /// time where there are as many as \p depth. Returns when all are answered: result[i] are client i's, in the order of
  /// their replies. The calling thread parks meanwhile. Throws the first error of each client, the first one's first.
  [[nodiscard]] std::vector<std::vector<request_times>> run(const std::vector<std::shared_ptr<const client_work>>& work,
                                                            std::size_t total, std::size_t depth);

private:
  class member;
  world world_;
  std::vector<std::unique_ptr<member>> members_;
};

/// From the first asking to the last reply of all.
[[nodiscard]] nanoseconds span_of(const std::vector<std::vector<request_times>>& times);

} // namespace troupe::program
