/// Completion through a word of pinned memory that the GPU writes in stream order.
#pragma once

#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/device/stream.hpp>

#include <optional>

namespace troupe {

/// A write in the stream itself is seen first, but delays all later work: 4 to 5 µs on an H200, where an event costs
/// nothing. Therefore the stream itself writes only if no earlier operation is in flight. Otherwise a separate stream
/// of the source waits for an event and then writes. (docs/design/0005-completion-marks.md)
class flag_source final : public completion_source {
public:
  explicit flag_source(std::shared_ptr<slot_table> slots) : slots_{std::move(slots)}, slot_{slots_->acquire()} {}
  ~flag_source() override;

  void prepare(const std::shared_ptr<device>& where) override;
  void arm(stream_ref stream, std::uint64_t sequence) override;
  [[nodiscard]] bool reached(std::uint64_t sequence) override { return slot_.reached(sequence); }
  void drained() noexcept override;

private:
  void write(stream_ref stream, std::uint64_t sequence) const;

  struct sideline {
    explicit sideline(const std::shared_ptr<device>& where) : writer{where}, mark{where} {}
    stream writer;
    event mark; ///< One event is enough: a wait refers to the last record before the wait was enqueued.
  };

  std::shared_ptr<slot_table> slots_;
  slot slot_;
  std::optional<sideline> sideline_;
  bool armed_ = false;
  bool drained_ = false;
};

} // namespace troupe
