/// The floor that completion strategies are compared with: a plain word of pinned memory that the stream itself writes.
#pragma once

#include <troupe/completion/sources/completion_source.hpp>

#include <atomic>
#include <cstdint>
#include <utility>

namespace troupe::program {

/// Uses no slot, no generation count and no second stream, so it shows what the hardware gives. The write delays the
/// operations that follow it in the stream.
class bare_word_source final : public completion_source {
public:
  explicit bare_word_source(const std::shared_ptr<device>& where)
    : memory_{allocate_pinned(where, sizeof(std::uint32_t))}, word_{memory_.host_span<std::uint32_t>().data()} {
    std::atomic_ref{*word_}.store(0, std::memory_order_relaxed);
  }

  void prepare(const std::shared_ptr<device>&) override {}
  void arm(stream_ref stream, std::uint64_t sequence) override {
    device& where = stream.where();
    where.api().write_word(where.id(), stream.native(), word_, static_cast<std::uint32_t>(sequence));
  }
  /// At most 2³¹ − 1 operations may be armed in all.
  [[nodiscard]] bool reached(std::uint64_t sequence) override {
    return std::atomic_ref{*word_}.load(std::memory_order_acquire) >= sequence;
  }
  void drained() noexcept override {}

private:
  buffer memory_;
  std::uint32_t* word_;
};

} // namespace troupe::program
