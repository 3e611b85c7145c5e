/// The facts about a request's memory that a rank's process sends to the controller, and the decision from these facts
/// which requests are launched together.
#pragma once

#include <troupe/collectives/collective_settings.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/pipeline/fusion_plan.hpp>
#include <troupe/collectives/pipeline/memory_ranges.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace troupe {

/// The facts of one rank's request. Two requests i < j of a rank use no common memory that one of them writes if the
/// `overlaps` of j is less than i.
struct request_facts {
  /// One more than the larger of the numbers of bytes that it reads and writes; 0: it is launched alone.
  std::uint64_t bytes = 0;
  /// The number of the rank's last undecided request before it that it overlaps or may overlap; 0: none.
  std::uint64_t overlaps = 0;
  std::uint64_t events = 0; ///< Names the ready events that it waits for; 0: none. They are never queried.
  /// digest_of_places(): where its operands are in registered memory. The same at all ranks (ORD-2).
  std::uint64_t places = 0;

  friend bool operator==(const request_facts&, const request_facts&) = default;
};

/// Finds the facts of one rank's requests in one world. Threads: one at a time.
class fusion_examiner {
public:
  fusion_examiner(rank self, int world_size, const fusion_limits& limits)
    : self_{self}, world_size_{world_size}, limits_{limits} {}

  /// Returns the facts of the request \p number, which is larger than those before. Requests up to \p decided have been
  /// decided.
  [[nodiscard]] request_facts examine(const operation& what, std::uint64_t number, std::uint64_t decided);
  /// Forgets the request \p number, the last one, which was not sent: the next request has its number.
  void forget(std::uint64_t number) noexcept {
    if (!undecided_.empty() && undecided_.back().number == number) undecided_.pop_back();
  }

private:
  struct request {
    std::uint64_t number = 0;
    std::vector<memory_range> ranges{};
  };
  [[nodiscard]] std::uint64_t name_of(std::vector<const event*> events);

  /// Number of undecided requests with which a request is compared. It counts as overlapping with all older ones.
  static constexpr std::size_t most_compared = 128;

  const rank self_;
  const int world_size_;
  const fusion_limits limits_;
  std::deque<request> undecided_;
  std::vector<const event*> last_events_;
  std::uint64_t events_ = 0;
};

/// Divides the operations that are released to one world at one time into launches, from their facts. A batch is a run
/// of operations in the order of release, as in fusion_planner.
class fusion_composer {
public:
  /// Begins a sequence of operations of a world of \p world_size ranks.
  void begin(int world_size, std::size_t max_operations, std::size_t max_bytes);
  /// One rank's part of the next operation.
  struct part {
    std::size_t rank = 0;
    std::uint64_t number = 0; ///< The number of the request at its rank.
    request_facts facts{};
  };
  /// Returns whether the next operation joins the batch before it. Else it begins a batch.
  [[nodiscard]] bool add(const std::vector<part>& next);
  /// Ends the batch: the next operation begins another.
  void end() noexcept { count_ = 0; }

private:
  /// The requests of one rank in the batch.
  struct member {
    std::uint64_t least = 0;    ///< The smallest number; 0: it has none.
    std::uint64_t overlaps = 0; ///< The largest of request_facts::overlaps.
    std::uint64_t events = 0;   ///< Those of the first operation.
  };
  [[nodiscard]] bool joins(const std::vector<part>& next, std::uint64_t bytes) const;

  std::vector<member> ranks_;
  std::size_t max_operations_ = 0;
  std::uint64_t max_bytes_ = 0;
  std::size_t count_ = 0;
  std::uint64_t bytes_ = 0;
  bool is_open_ = false; ///< Others may join.
};

} // namespace troupe
