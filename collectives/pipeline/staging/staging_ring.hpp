/// Slots of memory that chunks pass through in turn, each waiting on the device for the one before it in its slot.
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

/// Memory for one chunk, and the events that say when it may be used.
struct staging_slot {
  explicit staging_slot(const std::shared_ptr<device>& where) : filled{where}, free{where} {}

  buffer memory{};
  event filled; ///< What comes out of it may be read.
  event free;   ///< It may be filled again; recorded before the slot is taken anew.
};

/// Threads: the launcher's own.
class staging_ring {
public:
  using maker = std::function<buffer(std::size_t size_bytes)>;

  staging_ring(std::shared_ptr<device> where, std::size_t most_slots) noexcept
    : device_{std::move(where)}, most_{most_slots} {}

  /// The next slot, with at least \p size_bytes of memory. Whoever fills it waits for its event `free` first.
  /// Memory that is too small is replaced by \p make's; then \p outgrown gets the old, which may be in use yet.
  [[nodiscard]] staging_slot& take(std::size_t size_bytes, const maker& make, std::vector<buffer>& outgrown);

  /// Those there are: a ring grows while its oldest slot is still in use.
  [[nodiscard]] std::deque<staging_slot>& slots() noexcept { return slots_; }

private:
  std::shared_ptr<device> device_;
  std::size_t most_;
  std::deque<staging_slot> slots_;
  std::deque<staging_slot*> order_; ///< Oldest use first.
};

} // namespace troupe
