/// Slots of memory that chunks use in turn. A chunk waits on the device for the previous one in its slot.
#pragma once

#include <troupe/device/event.hpp>
#include <troupe/device/memory/buffer.hpp>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace troupe {

/// Memory for one chunk, and the events that tell when it may be used.
struct staging_slot {
  explicit staging_slot(const std::shared_ptr<device>& where) : filled{where}, free{where} {}

  buffer memory{};
  event filled; ///< Its content may be read.
  event free;   ///< It may be filled again. Recorded before the slot is taken again.
};

/// Threads: the launcher's only.
class staging_ring {
public:
  using maker = std::function<buffer(std::size_t size_bytes)>;

  staging_ring(std::shared_ptr<device> where, std::size_t most_slots) noexcept
    : device_{std::move(where)}, most_{most_slots} {}

  /// Returns the next slot, with at least \p size_bytes of memory. The caller must wait for the slot's event `free`
  /// before filling it. Memory that is too small is replaced by that of \p make; the old memory, which may still be in
  /// use, is moved to \p outgrown.
  [[nodiscard]] staging_slot& take(std::size_t size_bytes, const maker& make, std::vector<buffer>& outgrown);

  /// Existing slots. A ring grows while its oldest slot is still in use.
  [[nodiscard]] std::deque<staging_slot>& slots() noexcept { return slots_; }

private:
  std::shared_ptr<device> device_;
  std::size_t most_;
  std::deque<staging_slot> slots_;
  std::deque<staging_slot*> order_; ///< Oldest use first.
};

} // namespace troupe
