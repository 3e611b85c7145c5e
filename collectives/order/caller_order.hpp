/// The place of an order in a world whose clients order the requests themselves.
#pragma once

#include <troupe/collectives/order/world_order.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>

#include <memory>
#include <vector>

namespace troupe {

/// Orders nothing: requests go to the ranks' pipelines as they are asked (ordering::caller over processes), and turns
/// are granted at once, because the clients ask for maintenance at the same place at all ranks.
class caller_order final : public world_order {
public:
  /// \p ranks: the pipelines of this process's ranks. Without ranks, it is the order of a world between two epochs.
  explicit caller_order(std::vector<std::shared_ptr<rank_pipeline>> ranks = {}) : ranks_{std::move(ranks)} {}

  void ask(rank self, lane_request asked) override;
  void cancel(rank, lane, std::uint64_t) override {}
  void withdraw(rank, std::uint64_t, error) override {}

  void turn(turn_terms asked, turn_work work) override;
  /// Refuses every capture with objection_to_capture().
  void capture(const std::shared_ptr<captured_plan>& plan, nanoseconds deadline, nanoseconds limit,
               capture_start start) override;
  [[nodiscard]] error objection_to_capture() const override;
  void set_registered(std::vector<std::shared_ptr<registered_pool>>) override {}
  std::shared_ptr<latch> leave(error) override { return nullptr; }
  std::shared_ptr<latch> close(error, bool) override { return nullptr; }
  [[nodiscard]] world_entry entry() override { return {}; }

private:
  const std::vector<std::shared_ptr<rank_pipeline>> ranks_;
};

} // namespace troupe
