/// Which released operations are launched as one: decided once for all ranks, since ranks that grouped differently
/// would not meet (ORD-1).
#pragma once

#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// What may be launched together. It changes how NCCL works, and so how sums of floats are rounded.
enum class fusion : std::uint8_t {
  off,   ///< Nothing.
  plans, ///< Only the requests of a captured plan: the same in every run.
  free,  ///< Also requests that have been released while the launchers were busy: differs from run to run.
};

[[nodiscard]] std::string_view to_string(fusion mode) noexcept;
/// The mode called \p name. Errors: invalid_argument, naming the choices.
[[nodiscard]] fusion parse_fusion(std::string_view name);

/// The same in all processes of a world: launches follow from it. (docs/design/0018-fusion.md)
struct fusion_limits {
  fusion mode = fusion::free;
  std::size_t max_operations = 64;                           ///< Of one launch; 1 is as good as off.
  std::size_t max_bytes = std::size_t{4} << 20U;             ///< Of one launch in all: its first waits for its last.
  std::size_t max_operation_bytes = std::size_t{256} << 10U; ///< A larger one gains nothing, and goes alone.
};

/// Whether a launch of several may hold it at all: not a copy, a barrier, a replay, or what is staged through host
/// memory.
[[nodiscard]] bool may_be_fused(const operation& what);

/// One rank's part of a released operation.
struct fusion_part {
  rank self;
  const operation* what = nullptr;
};

/// Divides what has been released to one world into launches.
///
/// A batch is a run of operations in the order of release: none overtakes another, so what cannot join ends the batch.
/// It joins if, on every rank, it overlaps no member's memory with a writer among them, its ready events are waited for
/// by the batch anyway, and the limits allow it. Whether an event has been reached is not asked: plans are made on
/// actors' threads, which touch no device (BLK-1). Every mode except off fuses: what plans leaves out, its caller does
/// not hand in.
///
/// Lifetime: keeps its memory, so that planning allocates nothing in the end. Threads: one at a time, any.
class fusion_planner {
public:
  fusion_planner(int world_size, fusion_limits limits);
  fusion_planner(const fusion_planner&) = delete;
  fusion_planner& operator=(const fusion_planner&) = delete;
  ~fusion_planner();

  /// \p parts, those of all ranks, of one operation after the other: ends[i] is where the i-th operation's end. Ranks
  /// that take no part have none. \p batches gets the number of operations up to the end of each batch.
  void plan(std::span<const fusion_part> parts, std::span<const std::size_t> ends, std::vector<std::size_t>& batches);
  /// Whether an operation, of these parts, could share a launch with any other at all.
  [[nodiscard]] bool may_have_company(std::span<const fusion_part> parts);

private:
  class draft;
  fusion_limits limits_;
  std::unique_ptr<draft> draft_;
};

} // namespace troupe
