#include <troupe/collectives/backend/one_shot/block_budget.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace troupe {

namespace {

/// The blocks in use on each device.
struct used_blocks {
  [[nodiscard]] static used_blocks& of_process() {
    static used_blocks all;
    return all;
  }

  std::mutex mutex;
  std::map<process_device, unsigned> count;
};

unsigned take(device& where, unsigned room, unsigned most) {
  used_blocks& all = used_blocks::of_process();
  const std::lock_guard lock{all.mutex};
  unsigned& used = all.count[process_device_of(where)];
  const unsigned taken = share_of_room(room, used, most);
  used += taken;
  return taken;
}

} // namespace

process_device process_device_of(device& where) {
  return {where.api().name() == "cuda" ? nullptr : &where.api(), where.id()};
}

unsigned room_for_blocks(unsigned multiprocessors, unsigned resident, const kernel_needs& library) noexcept {
  // Multiprocessors that are free lie anywhere. In each part of a GPU some of them may be too few for a cluster. CUDA
  // does not tell the parts; those of GPUs with clusters have at least 16 multiprocessors.
  constexpr unsigned least_in_part = 16;
  const unsigned parts = (multiprocessors + least_in_part - 1) / least_in_part;
  const unsigned lost = library.cluster_blocks > 1 ? parts * (library.cluster_blocks - 1) : 0;
  const unsigned kept = library.blocks + lost;
  return multiprocessors > kept ? std::min(multiprocessors - kept, resident) : 0;
}

unsigned share_of_room(unsigned room, unsigned used, unsigned most) noexcept {
  const unsigned left = room > used ? room - used : 0;
  const unsigned usual = used == 0 ? left - left / 5 : left / 2;
  unsigned taken = most;
  while (taken > 1 && taken > usual) taken /= 2;
  return std::min(taken, left);
}

held_blocks::held_blocks(std::shared_ptr<device> where, unsigned room, unsigned most)
  : where_{std::move(where)}, count_{take(*where_, room, most)} {}

void held_blocks::give_back() noexcept {
  const unsigned taken = count_.exchange(0);
  if (taken == 0) return;
  used_blocks& all = used_blocks::of_process();
  const std::lock_guard lock{all.mutex};
  const auto found = all.count.find(process_device_of(*where_));
  if ((found->second -= taken) == 0) all.count.erase(found);
}

} // namespace troupe
