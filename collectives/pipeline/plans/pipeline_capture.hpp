/// Captures one rank's part of a plan in its pipeline.
#pragma once

#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

class capture_agreement;
class rank_pipeline;

/// The part of the rank of a pipeline. Threads: one at a time, the launcher's.
class pipeline_capture final : public rank_capture {
public:
  /// \p into is in capture. \p peers agree on each launch.
  pipeline_capture(rank_pipeline& one, stream_ref into, capture_agreement& peers);

  [[nodiscard]] rank self() const noexcept override;
  [[nodiscard]] int world_size() const noexcept override;
  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept override;
  [[nodiscard]] stream_ref stream() const noexcept override { return into_; }
  void launch(operation what) override;
  void launch_together(std::vector<operation> parts) override;
  void keep(buffer memory) override { content_.kept.push_back(std::move(memory)); }
  std::size_t launch_front(std::span<const operation> steps) override;

  /// Returns the content captured so far.
  [[nodiscard]] captured_plan::content& content() noexcept { return content_; }

private:
  void check(const operation& what) const;
  void check_side_by_side(std::span<const operation> parts) const;
  void check_halves(std::span<const operation> parts) const;
  /// Returns how many of \p parts, from the front, were launched.
  std::size_t enqueue(std::span<const operation> parts, bool divisible = false);

  rank_pipeline& pipeline_;
  stream_ref into_;
  capture_agreement& peers_;
  captured_plan::content content_;
};

} // namespace troupe
