#include <troupe/collectives/backend/nccl/nccl_barrier_word.hpp>
#include <troupe/device/memory/leak_report.hpp>

#include <cstdint>

namespace troupe {

nccl_barrier_memory::nccl_barrier_memory(const std::shared_ptr<device>& where)
  : side_{where}, word_{memory_pool::create(where)->allocate(sizeof(std::int32_t))} {
  side_.ref().fill(word_.data(), 0, word_.size_bytes());
  side_.ref().synchronize();
}

nccl_barrier_memory::~nccl_barrier_memory() {
  return_or_report("the word of NCCL barriers", [this] { word_.note_use(side_); });
}

void nccl_barrier_memory::outlast(const event& last_use) {
  const std::lock_guard lock{guard_};
  side_.ref().wait(last_use);
}

std::shared_ptr<nccl_barrier_memory> nccl_barrier_memories::of(const std::shared_ptr<device>& where) {
  const std::lock_guard lock{guard_};
  auto& one = all_[where];
  if (one == nullptr) one = std::make_shared<nccl_barrier_memory>(where);
  return one;
}

nccl_barrier_word::~nccl_barrier_word() {
  return_or_report("an NCCL barrier's event", [this] { memory_->outlast(last_use_); });
}

} // namespace troupe
