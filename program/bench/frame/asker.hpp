/// Ways to send requests in a benchmark: from actors by messages or from plain threads through the facade, and to the
/// world or, with one client per rank, to each rank.
#pragma once

#include <troupe/completion/reply/outcome.hpp>
#include <troupe/runtime/world.hpp>

#include <caf/fwd.hpp>

#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace troupe::program {

/// The requests of one client.
struct client_work {
  /// For requests to the world, slots[i] has all ranks' parts. For requests to a rank, slots[i] has one operation.
  std::vector<std::vector<operation>> slots;
  std::optional<rank> target{};
  /// Lanes that requests to a rank use in turn. If it is empty, the unnamed lane is used.
  std::vector<lane> lanes{};
};

/// Returns the work of one client of the world or, if \p lanes is not empty, of one client for each local rank, which
/// uses \p lanes in turn. sums[i] has the parts of the local ranks.
[[nodiscard]] std::vector<std::shared_ptr<const client_work>>
work_of(const world& where, const std::vector<std::vector<operation>>& sums, const std::vector<lane>& lanes = {});

/// The times when one request was sent and when its client saw the reply.
struct request_times {
  time_point asked;
  time_point replied;
  troupe::times between{}; ///< Taken from the reply, if there was one.
};

/// Registers the message types of the client actors. Call it once per process, before the runtime is made whose actor
/// system is passed to a client_group.
void register_client_messages();

/// The actor to which clients send their requests.
enum class answered_by {
  world,        ///< The world, or the collective actor of the client's rank.
  null_actor,   ///< An actor that answers at once without doing anything, so only CAF is measured.
  null_meeting, ///< An actor that does nothing but answer all clients when the last has asked.
};

/// Several client actors that work at the same time. Lifetime: destroyed before its runtime.
class client_group {
public:
  client_group(caf::actor_system& system, const world& where, std::size_t size, answered_by who = answered_by::world);
  client_group(const client_group&) = delete;
  client_group& operator=(const client_group&) = delete;
  ~client_group();

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

/// The times of one series of requests.
struct series {
  nanoseconds all{0};              ///< From the first request to the last reply seen.
  std::vector<nanoseconds> each{}; ///< From each request to its reply, as the client saw it.
  /// Filled only if each rank has a client of its own: from the first rank's request to the last rank's reply. Each
  /// entry is for one operation or, if a thread keeps several in flight, for one batch of them.
  std::vector<nanoseconds> spans{};
};

/// Spins until \p reply has its answer.
void spin_until_answered(const std::future<completion>& reply);

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

/// Returns an asker whose thread spins while it waits for replies. A parked thread would add its wake-up time to the
/// figures.
[[nodiscard]] std::unique_ptr<asker> make_thread_asker(world where);
[[nodiscard]] std::unique_ptr<asker> make_actor_asker(caf::actor_system& system, const world& where,
                                                      answered_by who = answered_by::world);

/// Returns an asker that runs one actor per rank, all in lane \p in. Each actor sends its next request as soon as its
/// previous one is answered, so only the operations themselves keep the ranks in step.
[[nodiscard]] std::unique_ptr<asker> make_rank_actor_asker(caf::actor_system& system, const world& where, lane in,
                                                           answered_by who = answered_by::world);
/// Returns an asker that runs one spinning thread per rank. One atomic releases all of them for each operation.
[[nodiscard]] std::unique_ptr<asker> make_rank_thread_asker(world where, lane in);

} // namespace troupe::program
