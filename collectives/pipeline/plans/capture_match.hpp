/// Where the ranks of a capture compare what they ask for, on the CPU, before any of them enqueues it (ORD-2).
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

/// The k-th launch with collectives of a rank meets the k-th of every other; the k-th send from one rank to another the
/// k-th recv, which must name the same tag, since a plan's launches are in one order. A capture in which that cannot be
/// any more (ranks ask for different things, wait for each other in a circle, or have come to their ends) fails at
/// once on all ranks; one whose ranks do not come fails at its deadline.
/// Threads: safe from any; each rank's calls come from one.
class capture_match {
public:
  /// What else ranks must agree on about one collective: errc::none, or why not.
  using comparison = std::function<error(std::span<const operation* const> parts)>;
  /// Why a rank must not wait any longer: errc::none as long as it may.
  using interruption = std::function<error()>;

  capture_match(int world_size, time_point deadline, comparison also = {});

  /// What \p self launches next. Returns when its peers have asked for the same. Blocks. Throws failure().
  void offer(rank self, std::span<const operation* const> all, const interruption& interrupted);
  /// \p self has come to its end. Returns when all have. Blocks. Throws failure().
  void end(rank self, const interruption& interrupted);
  /// Fails at the deadline, for a rank that is in none of the other calls: names where each is.
  void expire();
  /// Ends the capture on all ranks; the first reason stays.
  void fail(error why);
  /// errc::none as long as it has not failed.
  [[nodiscard]] error failure() const;

private:
  enum class stage : std::uint8_t { running, waiting, ended };
  struct member {
    stage at = stage::running;
    std::string asked{};                         ///< The launch that it waits in, for people.
    std::vector<const operation*> collectives{}; ///< Of that launch, while it waits for all.
    std::size_t unmet = 0;                       ///< Transfers of that launch whose other half has not come.
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
  std::map<transfer_key, half> alone_; ///< Transfers of which one half has come.
  error failure_;
};

} // namespace troupe
