/// How a world makes the communicators and pipelines of an epoch, and the streams that it reserves for that.
#pragma once

#include <troupe/actors/world/executor/executor_context.hpp>
#include <troupe/actors/world/world_plan.hpp>
#include <troupe/actors/world/world_state.hpp>
#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace troupe {

/// Returns new communicators for \p plan's locals. Errors: those of the backend.
[[nodiscard]] std::vector<std::shared_ptr<communicator>> make_communicators(const world_plan& plan);
/// Returns communicators for \p plan's locals that are derived from those of \p failed, as \p how says (shrink or
/// revoke). Errors: unsupported, communicator_failed.
[[nodiscard]] std::vector<std::shared_ptr<communicator>>
derive_communicators(const world_plan& plan, const world_effect::form& how,
                     const std::vector<std::shared_ptr<rank_pipeline>>& failed);
/// Returns a pipeline on \p peers for the local rank with this \p index, which posts its faults and late requests to
/// the world. \p world: the number of the world within the process (world_stamp).
[[nodiscard]] std::shared_ptr<rank_pipeline> create_pipeline(const executor_context& of, std::uint64_t world,
                                                             std::shared_ptr<communicator> peers, std::size_t index,
                                                             epoch formed_in);

/// Spare streams for each local device: a communicator that forms beside operations that hang needs streams, and the
/// device makes none while they hang (docs/design/0033-spare-streams.md). Copies share the streams. Threads: safe from
/// any, but one at a time for each device.
class spare_reserve {
public:
  spare_reserve() = default;
  explicit spare_reserve(const std::vector<local_rank>& locals);

  /// Frees the spare streams of \p of's device before \p of forms beside operations that hang there.
  void give_back(const rank_pipeline& of) const;
  /// Refills the spare streams of \p of's device when none of our operations hangs there. May wait for the device.
  void keep(const rank_pipeline& of) const;
  /// Removes a device that no rank uses any more.
  void forget(const std::shared_ptr<device>& where) { all_.erase(where); }

private:
  std::map<std::shared_ptr<device>, std::shared_ptr<spare_streams>> all_;
};

} // namespace troupe
