/// Work of a client's own that does not end until it is told to: operands that are ready behind it keep an operation in
/// flight for as long as a bench wants.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/event.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace troupe::program {

class held_event {
public:
  /// Errors: unsupported where streams of \p where cannot wait for words.
  explicit held_event(const std::shared_ptr<device>& where)
    : stream_{where}, memory_{allocate_pinned(where, sizeof(std::uint32_t))} {
    word().store(0, std::memory_order_relaxed);
    where->api().wait_word(where->id(), stream_.ref().native(), memory_.host_span<std::uint32_t>().data(), 1);
    event_ = record_event(where, stream_);
  }
  held_event(const held_event&) = delete;
  held_event& operator=(const held_event&) = delete;
  ~held_event() {
    release();
    try {
      stream_.ref().synchronize();
    } catch (...) {
      static_cast<void>(new buffer{memory_}); // a device that failed may look at it still: left behind on purpose
    }
  }

  [[nodiscard]] operand after(buffer memory) const { return {std::move(memory), event_}; }
  void release() const { word().store(1, std::memory_order_release); }

private:
  [[nodiscard]] std::atomic_ref<std::uint32_t> word() const {
    return std::atomic_ref{*memory_.host_span<std::uint32_t>().data()};
  }

  stream stream_;
  buffer memory_;
  shared_event event_;
};

} // namespace troupe::program
