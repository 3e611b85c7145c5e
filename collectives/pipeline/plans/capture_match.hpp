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
/// that can no longer match (ranks launch different operations, wait for each other in a cycle, or have ended) fails at
/// once on all ranks. A capture that some ranks do not join fails at its deadline.
/// Threads: safe from any; each rank's calls come from one.
class capture_match {
public:
  /// Checks further properties of one collective on which ranks must agree. Returns errc::none, or the reason.
  using comparison = std::function<error(std::span<const operation* const> parts)>;
  /// Returns the reason why a rank must stop waiting; errc::none if there is none.
  using interruption = std::function<error()>;

  capture_match(int world_size, time_point deadline, comparison also = {});

  /// Offers \p all as the next launch of \p self. Blocks until its peers have offered the same. Throws failure().
  void offer(rank self, std::span<const operation* const> all, const interruption& interrupted);
  /// Reports that \p self has made all its launches. Blocks until all ranks have. Throws failure().
  void end(rank self, const interruption& interrupted);
  /// Fails the capture because its deadline has passed while a rank is in none of the other calls. The error describes
  /// the state of each rank.
  void expire();
  /// Ends the capture on all ranks. Only the first reason is kept.
  void fail(error why);
  /// Returns the reason of the failure; errc::none if the capture has not failed.
  [[nodiscard]] error failure() const;

private:
  enum class stage : std::uint8_t { running, waiting, ended };
  struct member {
    stage at = stage::running;
    std::string asked{};                         ///< The launch in which the rank waits, for messages.
    std::vector<const operation*> collectives{}; ///< Collectives of that launch, while it waits for all ranks.
    std::size_t unmet = 0;                       ///< Transfers of that launch that the peer has not offered yet.
    std::size_t launches = 0;
    std::map<std::size_t, std::uint64_t> sent{};     ///< Number of sends, by receiver.
    std::map<std::size_t, std::uint64_t> received{}; ///< Number of receives, by sender.
    [[nodiscard]] bool waits() const noexcept { return !collectives.empty() || unmet > 0; }
  };
  using transfer_key = std::tuple<std::size_t, std::size_t, std::uint64_t>; ///< Sender, receiver, k.
  struct unmatched_end {
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
  mutable std::mutex mutex_;
  condition changed_;
  std::vector<member> members_;
  std::map<transfer_key, unmatched_end> unmatched_; ///< Transfers that only one of the two ranks has offered.
  error failure_;
};

} // namespace troupe
