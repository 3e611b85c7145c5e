/// Decides when a process connects to the controller of a world, what its user is told meanwhile, and when it gives up.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/threads/running_clock.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/transport/transport_options.hpp>
#include <troupe/runtime/configuration/configuration.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace troupe {

/// The result of a tick of controller_connection.
struct controller_finding {
  std::optional<error> over{}; ///< Set when no connection is needed any more: the reason.
  bool is_silent = false;      ///< The controller is silent: connect again.
  bool is_wanted = true;       ///< Whether to connect if there is no connection.
};

/// The decisions of controller_connection, without threads and sockets. Threads: one at a time.
class controller_search {
public:
  /// The interval of ticks, and the shortest delay between two attempts to connect.
  static constexpr std::chrono::milliseconds tick_period{20};

  /// \p patience: how long the controller may be unreachable. settings.patience is named in notices.
  controller_search(const control_settings& settings, nanoseconds patience, time_point now);

  /// Begins an attempt if one is due. Returns its number.
  [[nodiscard]] std::optional<std::uint64_t> begin_attempt(time_point now);
  /// Reports that the controller has admitted the latest attempt.
  void admit();
  /// Returns whether \p attempt has been admitted.
  [[nodiscard]] bool was_admitted(std::uint64_t attempt) const noexcept;
  /// Reports that the connection of an attempt has ended or could not be made, which changes nothing if another attempt
  /// has begun since.
  void lose(std::uint64_t attempt, const transport_fault& why, time_point now);

  /// Call it before the owner looks at the connection, every tick_period. The time without the controller is that of a
  /// running_clock: of a longer time without calls 250 ms count.
  void begin_tick(time_point now);
  /// Takes what the owner has found. Returns the notice for the user, if one is due.
  [[nodiscard]] std::optional<std::string> end_tick(const controller_finding& found);

  /// Returns why there is no connection; nullopt if there is one.
  [[nodiscard]] std::optional<std::string> obstacle() const;
  /// Returns why no connection is needed any more, or why the search has been given up.
  [[nodiscard]] const std::optional<error>& ended() const noexcept { return ended_; }

private:
  enum class state : std::uint8_t { absent, connecting, connected };

  const nanoseconds patience_;
  const nanoseconds told_patience_; ///< control.patience, after which this object or its owner gives up.
  const nanoseconds longest_retry_delay_;
  const nanoseconds first_notice_;
  state state_ = state::absent;
  bool is_wanted_ = true;
  std::uint64_t attempts_ = 0;
  nanoseconds retry_delay_{}; ///< After the latest attempt, if that failed.
  time_point next_attempt_{};
  nanoseconds next_notice_;
  running_clock running_;      ///< Read by begin_tick().
  running_time reached_;       ///< When there was a connection last.
  state seen_ = state::absent; ///< When the present tick began.
  error lost_;                 ///< Why there is no connection.
  std::optional<error> ended_{};
};

/// Returns whether the controller has refused the process, which another attempt would not change.
[[nodiscard]] bool is_refusal(const transport_fault& why) noexcept;

} // namespace troupe
