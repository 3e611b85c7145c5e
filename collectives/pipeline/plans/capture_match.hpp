/// Compares the requests of the ranks of a capture, on the CPU, before any rank enqueues them (ORD-2).
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/operation/signature.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/threads/condition.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace troupe {

/// The k-th launch with collectives of a rank matches the k-th of every other rank. The k-th send from one rank to
/// another matches the k-th recv, which must have the same tag, because a plan's launches are in one order. A capture
/// that can no longer match (ranks ask for different things, wait for each other in a circle, or have reached their
/// ends) fails at once on all ranks. A capture that some ranks do not join fails at its deadline.
/// Threads: safe from any; each rank's calls come from one.
class capture_match {
public:
  /// Checks what else ranks must agree on about one collective. Returns errc::none, or the reason.
  using comparison = std::function<error(std::span<const operation* const> parts)>;
  /// Returns the reason why a rank must not wait any longer; errc::none while it may.
  using interruption = std::function<error()>;

  capture_match(int world_size, time_point deadline, comparison also = {});

  /// \p self launches \p all next. Returns when its peers have asked for the same. Blocks. Throws failure().
  void offer(rank self, std::span<const operation* const> all, const interruption& interrupted);
  /// \p self has reached its end. Returns when all have. Blocks. Throws failure().
  void end(rank self, const interruption& interrupted);
  /// Fails at the deadline, when called for a rank that is in none of the other calls. The error says where each rank
  /// is.
  void expire();
  /// Ends the capture on all ranks. The first reason stays.
  void fail(error why);
  /// Returns errc::none while it has not failed.
  [[nodiscard]] error failure() const;

private:
  enum class stage : std::uint8_t { running, waiting, ended };
  struct member {
    stage at = stage::running;
    std::string asked{};                         ///< The launch in which it waits, for users.
    std::vector<const operation*> collectives{}; ///< Collectives of that launch, while it waits for all ranks.
    std::size_t unmet = 0;                       ///< Transfers of that launch whose other half was not offered yet.
    std::size_t launches = 0;
    std::map<std::size_t, std::uint64_t> sent{};     ///< By receiver.
    std::map<std::size_t, std::uint64_t> received{}; ///< By sender.
    [[nodiscard]] bool waits() const noexcept { return !collectives.empty() || unmet > 0; }
  };
  using transfer_key = std::tuple<std::size_t, std::size_t, std::uint64_t>; ///< From, to, k.
  struct half {
    std::size_t rank;
    signature what;
  };
  using lock_type = std::unique_lock<std::mutex>;

  void bring(std::size_t self, const operation& transfer);
  void compare_collectives();
  void find_standstill();
  void wait(lock_type& lock, const member& mine, const interruption& interrupted);
  void fail_locked(error why);
  [[nodiscard]] error lateness() const;
  [[nodiscard]] std::string describe_ranks() const;

  const time_point deadline_;
  const comparison also_;
  mutable std::mutex guard_;
  condition changed_;
  std::vector<member> members_;
  std::map<transfer_key, half> alone_; ///< Transfers of which one half was offered.
  error failure_;
};

} // namespace troupe
