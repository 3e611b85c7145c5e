/// Clients that ask a world for small all_reduces without pause, whatever happens to it, and keep books.
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
  std::size_t element_count = 256;      ///< Of f32.
  nanoseconds patience{30'000'000'000}; ///< A request without answer after that is never answered.
  std::size_t kept_replies = 1U << 18U; ///< Of each client between two calls of fault_traffic::begin().
};

struct traffic_counts {
  std::size_t asked = 0; ///< All_reduces, and the copies that show their results.
  std::size_t succeeded = 0;
  std::size_t failed = 0;   ///< With a fault, or in between two epochs.
  std::size_t rejected = 0; ///< Of those: certainly not run.
  std::size_t unanswered = 0;
  std::size_t doubled = 0;
  std::size_t verified = 0; ///< Results, each on all ranks.
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

/// An all_reduce's end, as its client sees it.
struct seen_reply {
  time_point asked;
  time_point replied;
  troupe::epoch epoch; ///< It was asked for.
  errc code = errc::none;
};

/// Threads: one for each client. The functions: one thread's.
class fault_traffic {
public:
  /// Begins to ask at once.
  fault_traffic(const world& where, const traffic_plan& plan);
  fault_traffic(const fault_traffic&) = delete;
  fault_traffic& operator=(const fault_traffic&) = delete;
  ~fault_traffic();

  /// Forgets the replies so far, not the counts.
  void begin();
  /// All clients' since begin(), in the order of their asking for each client.
  [[nodiscard]] std::vector<seen_reply> replies() const;
  /// The first reply that \p wanted says yes to, now or within \p at_most.
  [[nodiscard]] std::optional<seen_reply> await(const std::function<bool(const seen_reply&)>& wanted,
                                                nanoseconds at_most) const;
  /// Replies that were not kept, because too many came.
  [[nodiscard]] std::size_t unkept() const;
  /// The first failure since begin(), for people.
  [[nodiscard]] std::optional<error> first_failure() const;

  /// Ends when what has been asked has been answered.
  void stop();
  /// Complete after stop().
  [[nodiscard]] traffic_counts counts() const;

private:
  class client;
  std::vector<std::shared_ptr<client>> clients_;
  std::vector<std::jthread> threads_;
};

} // namespace troupe::program
