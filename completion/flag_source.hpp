/// Completion by a word of pinned memory that the GPU writes in stream order.
#pragma once

#include <troupe/completion/completion_source.hpp>

namespace troupe {

class flag_source final : public completion_source {
public:
  explicit flag_source(std::shared_ptr<slot_table> slots) : slots_{std::move(slots)}, slot_{slots_->acquire()} {}
  ~flag_source() override;

  void arm(stream_ref stream, std::uint64_t sequence) override;
  [[nodiscard]] bool reached(std::uint64_t sequence) override { return slot_.reached(sequence); }
  void drained() noexcept override { drained_ = true; }

private:
  std::shared_ptr<slot_table> slots_;
  slot slot_;
  bool drained_ = false;
};

} // namespace troupe
