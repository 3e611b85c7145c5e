/// A request that a pipeline has accepted.
#pragma once

#include <troupe/collectives/operation.hpp>
#include <troupe/collectives/pipeline_progress.hpp>
#include <troupe/collectives/staging/host_staging.hpp>
#include <troupe/completion/in_flight.hpp>

#include <memory>
#include <vector>

namespace troupe {

/// Holds descriptors, buffers and events until the outcome (BUF-1).
class pipeline_call final : public in_flight {
public:
  pipeline_call(ticket name, epoch formed_in, time_point deadline, answer reply, operation what, request_origin from,
                std::shared_ptr<progress_record> progress);

  [[nodiscard]] const operation& what() const noexcept { return what_; }
  /// What its launch waits for on the device.
  [[nodiscard]] const std::vector<const event*>& ready() const noexcept { return ready_; }
  [[nodiscard]] bool is_staged() const noexcept { return is_staged_; }
  [[nodiscard]] staging_hold& staged() noexcept { return staged_; }
  [[nodiscard]] const operation_sketch& sketch() const noexcept { return sketch_; }

  /// Before it is shared: it is launched with \p other, which leaves the track later, and so waits for the same.
  void wait_also_for(const pipeline_call& other);

  [[nodiscard]] bool inputs_ready() const override;
  void succeeded() noexcept override { progress_->finished.set(sketch_); }

private:
  operation what_;
  std::vector<const event*> ready_; ///< Held by what_, and by those that it is launched with.
  bool is_staged_;
  staging_hold staged_;
  operation_sketch sketch_;
  std::shared_ptr<progress_record> progress_; ///< The poller's last look may outlive the pipeline.
};

} // namespace troupe
