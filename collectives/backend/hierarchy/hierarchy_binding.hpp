/// Binds the steps of a plan to memory.
#pragma once

#include <troupe/collectives/backend/hierarchy/hierarchy_plan.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <vector>

namespace troupe {

/// The memory of one composed operation in a world of \p world_size ranks. Both arguments must outlive the binding.
class hierarchy_binding {
public:
  hierarchy_binding(const operation& asked, const buffer& scratch, int world_size);

  /// Returns the operation that a part's communicator launches for \p step.
  [[nodiscard]] operation bound(const hierarchy_step& step) const;
  void enqueue(const hierarchy_copy& what, stream_ref stream) const;

private:
  [[nodiscard]] buffer at(const hierarchy_range& where) const;
  [[nodiscard]] troupe::factor factor_of(hierarchy_factor which) const;

  buffer send_;
  buffer recv_;
  const buffer& scratch_;
  const troupe::factor* given_ = nullptr;
  dtype type_{};
  int world_size_;
};

} // namespace troupe
