/// Compares the launches of the ranks of a capture (ORD-2). A state machine without threads, clock or waiting.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/operation/signature.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace troupe {

/// The k-th launch with collectives of a rank matches the k-th of every other rank. The k-th send from one rank to
/// another matches the k-th recv, which must have the same tag, because a plan's launches are in one order. A capture
/// that can no longer match (ranks launch different operations, wait for each other in a cycle, or have ended) fails at
/// once. Threads: one at a time.
class capture_comparison {
public:
  explicit capture_comparison(int world_size);

  /// Adds \p all as the next launch of \p self, which must not be waiting. The operations must live until may_go(self)
  /// or until the capture has failed. If they are \p divisible, which is for collectives alone, only as many from the
  /// front are compared as every rank has offered: agreed(). \p places: digests_of_places() of its collectives
  /// (launch_parts); empty if all are 0.
  void offer(rank self, std::span<const operation* const> all, bool divisible = false,
             std::vector<std::uint64_t> places = {});
  /// Records that \p self has made all its launches.
  void end(rank self);
  /// Ends the capture. Only the first reason is kept.
  void fail(error why);
  /// Fails the capture because its deadline has passed. The error describes the state of each rank. Has no effect once
  /// all have ended, because some may have kept their graphs already.
  void expire();

  /// Returns whether the peers of \p self have offered what its last call needs.
  [[nodiscard]] bool may_go(rank self) const;
  /// Returns how many collectives of the last offer of \p self are launched.
  [[nodiscard]] std::size_t agreed(rank self) const;
  [[nodiscard]] bool all_have_ended() const;
  /// Returns errc::none if the capture has not failed.
  [[nodiscard]] const error& failure() const noexcept { return failure_; }

private:
  enum class stage : std::uint8_t { running, waiting, ended };
  struct member {
    stage at = stage::running;
    std::string asked{};                         ///< The launch in which the rank waits, for messages.
    std::vector<const operation*> collectives{}; ///< Collectives of that launch, while it waits for all ranks.
    std::vector<std::uint64_t> places{};         ///< Digests of places, as many as `collectives`.
    bool divisible = false;
    std::size_t agreed = 0;
    std::size_t unmet = 0; ///< Transfers of that launch that the peer has not offered yet.
    std::size_t launches = 0;
    std::map<std::size_t, std::uint64_t> sent{};     ///< Number of sends, by receiver.
    std::map<std::size_t, std::uint64_t> received{}; ///< Number of receives, by sender.

    /// Continues if nothing is missing any more.
    void go_on();
  };
  using transfer_key = std::tuple<std::size_t, std::size_t, std::uint64_t>; ///< Sender, receiver, k.
  struct unmatched_end {
    std::size_t rank = 0;
    signature what;
  };

  void bring(std::size_t self, const operation& transfer);
  void compare_collectives();
  /// Returns an error if the ranks use different places of registered memory in one of their collectives.
  [[nodiscard]] error compare_places() const;
  void find_standstill();
  [[nodiscard]] std::string describe_ranks() const;

  std::vector<member> members_;
  std::map<transfer_key, unmatched_end> unmatched_; ///< Transfers that only one of the two ranks has offered.
  error failure_;
};

} // namespace troupe
