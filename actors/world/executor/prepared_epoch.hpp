/// Forms the communicator of a later epoch while the present one serves: the preparation of a planned change
/// (docs/design/0117-planned-change.md).
#pragma once

#include <troupe/actors/world/controller_directives.hpp>
#include <troupe/actors/world/executor/executor_context.hpp>
#include <troupe/actors/world/executor/forming.hpp>
#include <troupe/actors/world/world_notes.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>
#include <memory>

namespace troupe {

/// The pipeline that a guided world has prepared in this process, at most one. The controller is told when it has
/// formed or failed. Threads: one at a time, as the executor.
class prepared_epoch {
public:
  /// \p world: the number of this world within the process (world_stamp). \p spares must outlive it.
  prepared_epoch(const executor_context& of, std::uint64_t world, const spare_reserve& spares)
    : of_{of}, world_{world}, spares_{spares} {}

  /// Creates a pipeline and, in a helper, its communicator. Drops the pipeline that was prepared before.
  void prepare(const prepare_directive& directive);
  /// Handles a report of the prepared pipeline. Returns whether it was one.
  [[nodiscard]] bool on_report(const rank_report& one);
  /// Returns the pipeline if that of \p now is prepared. Otherwise drops what is prepared, and returns null.
  [[nodiscard]] std::shared_ptr<rank_pipeline> take(epoch now);
  /// Aborts the prepared pipeline, if any, in a helper.
  void drop();
  /// The same for that of \p of alone.
  void drop(epoch of);

private:
  const executor_context of_;
  const std::uint64_t world_;
  const spare_reserve& spares_;
  std::shared_ptr<rank_pipeline> prepared_; ///< For a later epoch; null if none is prepared.
  bool is_formed_ = false;                  ///< Whether its communicator has formed.
};

} // namespace troupe
