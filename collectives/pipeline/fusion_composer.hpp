/// Decides which released operations share one launch. The decision is made once for all ranks, because ranks with
/// different groupings would not match (ORD-1).
#pragma once

#include <troupe/collectives/collective_settings.hpp>
#include <troupe/collectives/operation/compact_signature.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/pipeline/memory_ranges.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// Returns whether an operation may share a launch at all. Copies, barriers, replays and operations staged through host
/// memory may not.
[[nodiscard]] bool may_be_fused(const operation& what);
/// Returns whether an operation may share a launch and is one collective, so that every rank has it.
[[nodiscard]] bool is_single_collective(const operation& what);

/// The facts that decide whether one rank's part of an operation may share a launch with others.
struct fusion_survey {
  std::vector<memory_range> ranges{};  ///< The memory that it uses.
  std::vector<const event*> awaited{}; ///< The ready events of its operands.
  std::size_t bytes = 0;               ///< The number of bytes that it reads, or that it writes, whichever is larger.
};
/// Adds the facts of a part to \p into. Returns false if it may not share a launch at all.
[[nodiscard]] bool survey_part(const operation& what, rank self, int world_size, fusion_survey& into);

/// Predicts whether an operation should wait so that others can join its launch. After each wait that no operation
/// joined, some operations do not wait: 1, then 3, 7, up to 63.
class company_forecast {
public:
  /// Returns whether the next operation should wait for others.
  [[nodiscard]] bool expects_company() noexcept {
    if (alone_ == 0) return true;
    --alone_;
    return false;
  }
  /// Notes whether the operation that came after a waiting one could join it.
  void note(bool joined) noexcept {
    run_ = joined ? 0 : std::min(2 * run_ + 1, most_alone);
    alone_ = run_;
  }

private:
  static constexpr std::size_t most_alone = 63;

  std::size_t run_ = 0;   ///< Operations that skip the wait after the last unsuccessful wait; 0 after a successful one.
  std::size_t alone_ = 0; ///< Number of next operations that do not wait.
};

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

/// Divides the operations released to one world into launches, from the facts of the ranks' requests: the rule of
/// fusion, in one process, over processes, and in plans (docs/design/0097-one-order.md).
///
/// A batch is a run of operations in the order of release. No operation overtakes another, so one that cannot join ends
/// the batch. An operation joins if three conditions hold: on every rank, it shares no memory with a member if one of
/// the two writes that memory; the batch already waits for its ready events; the limits allow it. An operation in which
/// a rank has several requests (transfers that one group of a peer meets) is launched alone: they are launched in their
/// order. Events are not queried, because decisions are made on threads that do not touch devices (BLK-1).
///
/// Lifetime: working memory is reused, so that composing stops allocating after a while. Threads: any, but one at a
/// time.
class fusion_composer {
public:
  /// Begins a sequence of operations of a world of \p world_size ranks.
  void begin(int world_size, std::size_t max_operations, std::size_t max_bytes);
  /// One rank's part of the next operation.
  struct part {
    std::size_t rank = 0;
    std::uint64_t number = 0; ///< The number of the request at its rank, from 1.
    request_facts facts{};
  };
  /// Returns whether the next operation joins the batch before it. Else it begins a batch.
  [[nodiscard]] bool add(const std::vector<part>& next);
  /// Returns whether an operation could share a launch with any other operation.
  [[nodiscard]] bool may_have_company(const std::vector<part>& one);
  /// Ends the batch: the next operation begins another.
  void end() noexcept { count_ = 0; }

private:
  /// The requests of one rank in the batch.
  struct member {
    std::uint64_t least = 0;    ///< The smallest number; 0: it has none.
    std::uint64_t overlaps = 0; ///< The largest of request_facts::overlaps.
    std::uint64_t events = 0;   ///< Those of the first operation.
  };
  [[nodiscard]] bool joins(const std::vector<part>& next) const;

  std::vector<member> ranks_;
  std::vector<std::uint64_t> seen_; ///< By rank: the last operation that may_have_company() has examined there.
  std::uint64_t examined_ = 0;
  std::size_t max_operations_ = 0;
  std::uint64_t max_bytes_ = 0;
  std::size_t count_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t next_bytes_ = 0; ///< Of the operation that may_have_company() has examined last.
  bool is_open_ = false;         ///< Others may join.
};

/// One rank's part of a released operation.
struct fusion_part {
  rank self;
  const operation* what = nullptr;
};

/// Composes launches of operations whose operands this process knows, at all ranks that are composed for. It finds the
/// facts when operations are composed, against the batch that they may join, so a request that is launched by itself
/// is not examined. Every mode except off fuses; for mode plans, the caller passes only the operations of a captured
/// plan. Lifetime and threads: as fusion_composer.
class operand_composer {
public:
  operand_composer(int world_size, fusion_limits limits);

  /// Plans the launches of a sequence of operations. \p parts holds the parts of all ranks of one operation after the
  /// other; ends[i] is the end of the i-th operation's parts. A rank that does not take part has no part. Sets \p
  /// batches to the number of operations up to the end of each batch.
  void plan(std::span<const fusion_part> parts, std::span<const std::size_t> ends, std::vector<std::size_t>& batches);
  /// Returns whether an operation with these parts could share a launch with any other operation.
  [[nodiscard]] bool may_have_company(std::span<const fusion_part> parts);

private:
  /// What one rank's parts of the batch use.
  struct member {
    memory_ranges used{};
    std::vector<const event*> awaited{}; ///< By the first operation.
    std::uint64_t events = 0;            ///< The name of these events.
  };
  /// The memory that a rank's part uses through one argument.
  struct used_range {
    std::size_t rank = 0;
    memory_range where{};
    std::size_t near = 0; ///< Hint: its place among the ranges of the batch.
  };
  struct awaited_event {
    std::size_t rank = 0;
    const event* ready = nullptr;
  };

  /// Finds the facts of the operation \p number, against the batch under construction.
  void examine(std::span<const fusion_part> parts, std::uint64_t number);
  [[nodiscard]] request_facts facts_of(const fusion_part& one, std::uint64_t number);
  /// Begins a batch with the examined operation.
  void begin();

  fusion_limits limits_;
  fusion_composer composer_;
  std::vector<member> members_; ///< Indexed by rank.

  // The examined operation.
  std::vector<fusion_composer::part> facts_;
  std::vector<used_range> ranges_;
  std::vector<awaited_event> events_;
  fusion_survey found_; ///< Of its last part.
};

} // namespace troupe
