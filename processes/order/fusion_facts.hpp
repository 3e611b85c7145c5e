/// Finds the facts about a request's operands that a rank's process sends to the controller, where fusion_composer
/// decides from them which requests are launched together.
#pragma once

#include <troupe/collectives/collective_settings.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/pipeline/fusion_composer.hpp>
#include <troupe/collectives/pipeline/memory_ranges.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace troupe {

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

} // namespace troupe
