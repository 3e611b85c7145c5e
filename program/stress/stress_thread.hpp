/// Defines a client of a stress run that is a plain thread, and goes on in the epochs that follow the loss of a
/// process.
#pragma once

#include <troupe/program/stress/stress_client.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace troupe::program {

/// The times of a stress_thread.
struct thread_pace {
  nanoseconds patience{60'000'000'000}; ///< A request that has no answer after this time counts as unanswered.
  nanoseconds longest_pause{1'000'000}; ///< Between two steps; drawn at random.
  /// The deadline of every fourth agree: if the process of a rank is stopped for longer, the order refuses it.
  nanoseconds short_deadline{500'000'000};
};

/// Sends the steps of lane 0 of one client to one rank, as an actor of spawn_stress_client() does, but one step at a
/// time. Threads: one at a time.
class stress_thread {
public:
  stress_thread(stress_scene& scene, rank self, std::size_t client, const thread_pace& pace);

  /// Sends steps in epoch \p in, beginning with step \p first, until a request ends with the epoch or there is a fault.
  void run(epoch in, std::size_t first);
  /// Returns how many requests were answered more than once.
  [[nodiscard]] std::size_t doubled() const noexcept { return doubled_->load(); }

private:
  enum class outcome_of_step : std::uint8_t { done, refused, over };

  [[nodiscard]] outcome_of_step ask(const stress_step& step, std::vector<operation> requests, std::size_t operation_at,
                                    const std::optional<agreed_value>& expected);

  stress_scene& scene_;
  const rank self_;
  const std::size_t client_;
  const thread_pace pace_;
  const lane lane_;
  epoch in_{};
  std::uint64_t asker_ = 0; ///< rank_lane::client()
  draws chance_;
  std::shared_ptr<std::atomic<std::size_t>> doubled_ = std::make_shared<std::atomic<std::size_t>>(0);
};

} // namespace troupe::program
