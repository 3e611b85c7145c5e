/// Passes the requests that a planned change holds from the order of the drained epoch to that of the next one.
#pragma once

#include <troupe/actors/world/executor/executor_context.hpp>
#include <troupe/collectives/order/world_order.hpp>
#include <troupe/device/error.hpp>

#include <memory>
#include <utility>

namespace troupe {

/// The former orders of one world that have not passed on all requests yet. Threads: one at a time, as the executor.
class order_hand_over {
public:
  explicit order_hand_over(const executor_context& of) : of_{of} {}

  /// Keeps the order of the epoch that was drained, with the requests that it holds.
  void keep(std::shared_ptr<world_order> drained) { held_ = std::move(drained); }
  /// Returns the kept order, which is not kept any more; null if there is none.
  [[nodiscard]] std::shared_ptr<world_order> take() noexcept { return std::exchange(held_, nullptr); }
  /// Refuses the requests of the kept order, if there is one, with \p why.
  void refuse(const error& why);

  /// Makes \p from pass on its requests to the present order. Requests that it cannot pass on are refused with \p why.
  /// A report is posted at the end (rank_report::kind::handed_over).
  void begin(const std::shared_ptr<world_order>& from, const error& why);
  /// Handles the report. Returns whether all orders have passed on what they held: clients ask the present one.
  [[nodiscard]] bool on_end();
  /// Returns the first of the orders that still pass on requests; null if there is none. Clients of single ranks ask
  /// it, so that no request overtakes another of its client.
  [[nodiscard]] const std::shared_ptr<world_order>& entrance() const noexcept { return entrance_; }
  void clear() noexcept { entrance_ = nullptr; }

private:
  const executor_context of_;
  std::shared_ptr<world_order> held_;
  std::shared_ptr<world_order> entrance_;
  int under_way_ = 0; ///< Number of orders that still pass on requests.
};

} // namespace troupe
