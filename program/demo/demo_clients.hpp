/// Defines the clients of the demo, threads with futures and actors with messages, and the ledger of their requests.
/// Each client runs several rounds of a batch.
#pragma once

#include <troupe/program/conform/conform_image.hpp>
#include <troupe/program/support/interruption.hpp>

#include <troupe/completion/reply/outcome.hpp>
#include <troupe/runtime/world.hpp>

#include <caf/fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::program {

/// Counts requests, replies and results of all clients. Threads: safe from any.
class demo_ledger {
public:
  /// Records a request and returns its number.
  [[nodiscard]] std::size_t ask(const std::string& kind);
  void answered(std::size_t request, const completion& reply);
  void answered(std::size_t request, const error& failure);
  /// Records how many results were checked and correct, and how many were wrong.
  void verified(std::size_t right, std::size_t wrong);

  /// Returns the number of requests answered so far as text for the progress line.
  [[nodiscard]] std::string progress() const;
  /// Prints a table by kind, then the line `answered N/N, wrong 0, lost 0, doubled 0`.
  void print() const;
  [[nodiscard]] bool clean() const;

private:
  struct entry {
    const std::string* kind = nullptr;
    int answers = 0;
  };
  struct tally {
    std::size_t asked = 0;
    std::size_t failed = 0;
    std::vector<double> microseconds{}; ///< The times from acceptance to completion.
  };
  struct sums {
    std::size_t answered = 0;
    std::size_t lost = 0;
    std::size_t doubled = 0;
    std::size_t failed = 0;
  };
  [[nodiscard]] sums add_up() const;

  mutable std::mutex mutex_;
  std::vector<entry> entries_;
  std::map<std::string, tally> kinds_;
  std::string first_failure_;
  std::size_t verified_ = 0;
  std::size_t wrong_ = 0;
};

/// The work of one client.
struct client_task {
  std::vector<rank> ranks{}; ///< All ranks of the world: requests go to the world. One rank: requests go to it (SPMD).
  std::shared_ptr<common_rounds> rounds{}; ///< The same for all clients of one SPMD group.
  std::size_t requests = 1;                ///< The requests in flight at the same time, in each round.
  std::size_t count = 1024;                ///< The largest number of elements of a request.
  std::uint64_t seed = 0;                  ///< The same for all clients of one SPMD group.
  troupe::lane lane{}; ///< The client's own lane at each rank; the same for all clients of one SPMD group.
  std::shared_ptr<known_values> values{}; ///< Of the world. Shared by all clients.
};

/// Runs the task in the calling thread. Stops at the first failure.
void run_thread_client(world where, const client_task& task, demo_ledger& books);

/// Spawns an actor that runs the task and then counts \p ended down. \p books must outlive it.
void spawn_actor_client(caf::actor_system& system, world where, const client_task& task, demo_ledger& books,
                        std::latch& ended);

} // namespace troupe::program
