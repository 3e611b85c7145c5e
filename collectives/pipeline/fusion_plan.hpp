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
#include <functional>
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

/// Returns whether a rank has several requests among the \p parts of one operation, of which \p any is one: transfers
/// that one group of a peer meets. They are launched in their order, one after the other, so the operation shares no
/// launch. \p rank_of returns the rank of a part.
template <class Parts, class RankOf>
[[nodiscard]] bool repeats_a_rank(const operation& any, const Parts& parts, RankOf rank_of) {
  if (reach_of(any) != operation_reach::peers) return false; // every rank has one part
  std::vector<rank> ranks;
  for (const auto& part : parts) ranks.push_back(std::invoke(rank_of, part));
  std::ranges::sort(ranks);
  return std::ranges::adjacent_find(ranks) != ranks.end();
}

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

/// One rank's part of a released operation.
struct fusion_part {
  rank self;
  const operation* what = nullptr;
};

/// Divides the operations released to one world into launches.
///
/// A batch is a run of operations in the order of release. No operation overtakes another, so one that cannot join ends
/// the batch. An operation joins if three conditions hold: on every rank, it shares no memory with a member if one of
/// the two writes that memory; the batch already waits for its ready events; the limits allow it. An operation in which
/// a rank has several requests (transfers that one group of a peer meets) is launched alone. Events are not queried:
/// plans are made on actors' threads, which do not touch devices (BLK-1). Every mode except off fuses; for mode plans,
/// the caller passes only the operations of a captured plan.
///
/// Lifetime: working memory is reused, so that planning stops allocating after a while. Threads: any, but one at a
/// time.
class fusion_planner {
public:
  fusion_planner(int world_size, fusion_limits limits)
    : limits_{limits}, members_(static_cast<std::size_t>(world_size)) {}

  /// Plans the launches of a sequence of operations. \p parts holds the parts of all ranks of one operation after the
  /// other; ends[i] is the end of the i-th operation's parts. A rank that does not take part has no part. Sets \p
  /// batches to the number of operations up to the end of each batch.
  void plan(std::span<const fusion_part> parts, std::span<const std::size_t> ends, std::vector<std::size_t>& batches);
  /// Returns whether an operation with these parts could share a launch with any other operation.
  [[nodiscard]] bool may_have_company(std::span<const fusion_part> parts);

private:
  /// One rank's part of the batch under construction.
  struct member {
    memory_ranges used{};
    std::vector<const event*> awaited{};
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

  /// Examines the next operation.
  void survey(std::span<const fusion_part> parts);
  /// Returns whether the examined operation may share a launch with the members of the batch.
  [[nodiscard]] bool joins();
  /// Begins a batch with the examined operation.
  void begin();
  /// Adds the examined operation to the batch.
  void add();

  fusion_limits limits_;
  std::vector<member> members_; ///< Indexed by rank.
  std::size_t count_ = 0;
  std::size_t all_bytes_ = 0;
  bool open_ = false; ///< Other operations may join the batch.

  // The examined operation.
  std::vector<used_range> ranges_;
  std::vector<awaited_event> events_;
  fusion_survey found_; ///< The facts of its last part, with the largest number of bytes of all its parts.
  bool fits_ = false;   ///< It may share a launch with some other operation.
};

} // namespace troupe
