/// How many blocks of one-shot kernels may wait for peers on a device at once, so that they exclude neither each other
/// nor the library's kernels (docs/design/0106-one-shot-collectives.md).
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/device/device.hpp>

#include <atomic>
#include <memory>
#include <utility>

namespace troupe {

/// Names a device in this process: those of CUDA are the process's, those of a mock its own.
using process_device = std::pair<const driver*, device_id>;
[[nodiscard]] process_device process_device_of(device& where);

/// Returns the most blocks that all communicators together may have on a device with \p multiprocessors. They leave as
/// many free as a kernel of \p library needs, wherever they are. \p resident: the blocks that run at once if nothing
/// else does.
[[nodiscard]] unsigned room_for_blocks(unsigned multiprocessors, unsigned resident,
                                       const kernel_needs& library) noexcept;

/// Returns how many blocks the next communicator gets, at most \p most, where the others have \p used of \p room. The
/// first gets up to four fifths of the room, later ones up to a half of what is left. 0: nothing is left.
[[nodiscard]] unsigned share_of_room(unsigned room, unsigned used, unsigned most) noexcept;

/// Blocks of a communicator on a device, out of those of all communicators of this process. Threads: give_back() from
/// any.
class held_blocks {
public:
  /// Takes a share of \p room, of at most \p most blocks.
  held_blocks(std::shared_ptr<device> where, unsigned room, unsigned most);
  held_blocks(const held_blocks&) = delete;
  held_blocks& operator=(const held_blocks&) = delete;
  ~held_blocks() { give_back(); }

  /// Returns how many they are. 0: none were left, or they have been given back.
  [[nodiscard]] unsigned count() const noexcept { return count_; }
  void give_back() noexcept;

private:
  std::shared_ptr<device> where_;
  std::atomic<unsigned> count_;
};

} // namespace troupe
