/// Runs clients that continuously send small all_reduces to a world, also during faults and recovery, and record the
/// outcomes.
#pragma once

#include <troupe/completion/reply/outcome.hpp>
#include <troupe/runtime/world.hpp>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace troupe::program {

struct traffic_plan {
  std::size_t clients = 1;
  std::size_t element_count = 256;      ///< The number of f32 elements per request.
  nanoseconds patience{30'000'000'000}; ///< A request that has no answer after this time counts as unanswered.
  bool on_registered = false;           ///< Operands lie in memory that is registered with the world already.
  std::size_t kept_replies = 1U << 18U; ///< The limit per client, between two calls of fault_traffic::begin().
};

struct traffic_counts {
  std::size_t asked = 0; ///< The requests: all_reduces, and copies that fetch their results.
  std::size_t succeeded = 0;
  std::size_t failed = 0;   ///< Requests that failed by a fault or while no epoch was ready.
  std::size_t rejected = 0; ///< Those of `failed` that certainly did not run.
  std::size_t unanswered = 0;
  std::size_t doubled = 0;
  std::size_t verified = 0; ///< The results that were checked, each on all ranks.
  std::size_t wrong = 0;

  traffic_counts& operator+=(const traffic_counts& more) noexcept {
    asked += more.asked;
    succeeded += more.succeeded;
    failed += more.failed;
    rejected += more.rejected;
    unanswered += more.unanswered;
    doubled += more.doubled;
    verified += more.verified;
    wrong += more.wrong;
    return *this;
  }
};

/// The reply to an all_reduce as its client received it.
struct seen_reply {
  time_point asked;
  time_point replied;
  troupe::epoch epoch; ///< The epoch in which it was sent.
  errc code = errc::none;
};

/// Runs the clients, one thread each. Threads: the member functions must be called by one thread.
class fault_traffic {
public:
  /// Starts to send requests immediately.
  fault_traffic(const world& where, const traffic_plan& plan);
  fault_traffic(const fault_traffic&) = delete;
  fault_traffic& operator=(const fault_traffic&) = delete;
  ~fault_traffic();

  /// Discards the replies so far, but keeps the counts.
  void begin();
  /// Returns the replies of all clients since begin(). Those of one client are in the order of its requests.
  [[nodiscard]] std::vector<seen_reply> replies() const;
  /// Returns the first reply for which \p wanted returns true. Waits for it up to \p at_most.
  [[nodiscard]] std::optional<seen_reply> await(const std::function<bool(const seen_reply&)>& wanted,
                                                nanoseconds at_most) const;
  /// Returns how many replies were not kept because there were too many.
  [[nodiscard]] std::size_t unkept() const;
  /// Returns the first failure since begin(), for messages.
  [[nodiscard]] std::optional<error> first_failure() const;

  /// Stops sending. Returns when all requests sent so far have been answered.
  void stop();
  /// Returns the counts, which are complete after stop().
  [[nodiscard]] traffic_counts counts() const;

private:
  class client;
  std::vector<std::shared_ptr<client>> clients_;
  std::vector<std::jthread> threads_;
};

} // namespace troupe::program
