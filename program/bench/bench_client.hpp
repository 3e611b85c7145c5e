/// Client actors that send requests to a world, or to one of its ranks, repeatedly and with several in flight.
#pragma once

#include <troupe/completion/reply/outcome.hpp>
#include <troupe/runtime/world.hpp>

#include <caf/fwd.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace troupe::program {

/// The requests of one client.
struct client_work {
  /// For requests to the world, slots[i] has all ranks' parts. For requests to a rank, slots[i] has one operation.
  std::vector<std::vector<operation>> slots;
  std::optional<rank> whom{};
  /// Lanes that requests to a rank use in turn. If it is empty, the unnamed lane is used.
  std::vector<lane> lanes{};
};

/// The times when one request was sent and when its client saw the reply.
struct request_times {
  time_point asked;
  time_point replied;
  troupe::times between{}; ///< Taken from the reply, if there was one.
};

/// Registers the message types of the client actors. Call it once per process, before the runtime is made whose actor
/// system is passed to a client_crew.
void register_client_messages();

/// Several client actors that work at the same time. Lifetime: destroyed before its runtime.
class client_crew {
public:
  client_crew(caf::actor_system& system, const world& where, std::size_t size);
  client_crew(const client_crew&) = delete;
  client_crew& operator=(const client_crew&) = delete;
  ~client_crew();

  /// Client i sends the requests of work[i] \p total times, with at most \p depth in flight. Where there are at least
  /// \p depth slots, no slot is used by two requests at the same time. Returns when all requests are answered:
  /// result[i] has client i's times, in the order of its replies. The calling thread is parked meanwhile. Each client
  /// reports its first error; throws that of the first client that failed.
  [[nodiscard]] std::vector<std::vector<request_times>> run(const std::vector<std::shared_ptr<const client_work>>& work,
                                                            std::size_t total, std::size_t depth);

private:
  class member;
  world world_;
  std::vector<std::unique_ptr<member>> members_;
};

/// Returns the time from the first request to the last reply, over all clients.
[[nodiscard]] nanoseconds span_of(const std::vector<std::vector<request_times>>& times);

} // namespace troupe::program
