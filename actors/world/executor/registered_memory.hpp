/// Owns the memory that a world has registered with its ranks, and registers it again in each epoch.
#pragma once

#include <troupe/actors/caf/requests.hpp>
#include <troupe/actors/world/executor/executor_context.hpp>
#include <troupe/actors/world/executor/rank_results.hpp>
#include <troupe/actors/world/executor/restored_parts.hpp>
#include <troupe/actors/world/executor/world_maintenance.hpp>
#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/device/time.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace troupe {

/// The registered memory of one world. A registration is maintenance in two pieces: all ranks allocate, then all
/// register. Threads: one at a time, as the executor.
class registered_memory {
public:
  registered_memory(const executor_context& of, world_maintenance& maintenance, restored_parts& restored)
    : of_{of}, maintenance_{maintenance}, restored_{restored} {}

  void perform(const registration_request& asked, std::shared_ptr<registration_promise> reply);
  [[nodiscard]] const std::vector<std::shared_ptr<registered_pool>>& pools() const noexcept { return pools_; }

  /// The next epoch has a new process, which has registered no memory: that of the others is registered again when the
  /// new process registers memory of the same size.
  void expect_newcomers();
  /// Removes the ranks at these indices from all pools.
  void leave_out(const std::vector<std::size_t>& gone);
  /// Returns the part of a rank's forming that registers its memory again.
  [[nodiscard]] rank_work registration_while_forming();
  /// Records what was registered while the ranks formed.
  void formed();
  /// Asks for the turns at which memory is registered that the last epoch left out (expect_newcomers()).
  void register_missing();
  void clear() noexcept;

private:
  using regions = rank_results<std::shared_ptr<registered_region>>;
  using spans = std::vector<std::pair<time_point, time_point>>;

  /// Registers \p made with all ranks: the second half of a registration.
  void enroll(const std::shared_ptr<regions>& made, std::size_t size_bytes,
              std::shared_ptr<registration_promise> reply);
  void add(std::shared_ptr<registered_pool> pool);
  void register_again(const std::shared_ptr<registered_pool>& pool);

  const executor_context of_;
  world_maintenance& maintenance_;
  restored_parts& restored_;
  std::vector<std::shared_ptr<registered_pool>> pools_;
  /// Memory that is not registered because a process that has joined has not registered any.
  std::vector<std::shared_ptr<registered_pool>> missing_;
  /// Set while a forming repeats registrations: the begin and end of each at each rank.
  std::shared_ptr<rank_results<spans>> forming_;
};

} // namespace troupe
