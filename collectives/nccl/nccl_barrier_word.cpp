#include <troupe/collectives/nccl/nccl_barrier_word.hpp>
#include <troupe/device/unreturned.hpp>

#include <cstdint>

namespace troupe {

nccl_barrier_word::nccl_barrier_word(const std::shared_ptr<device>& where)
  : side_{where}, last_use_{where}, word_{memory_pool::create(where)->allocate(sizeof(std::int32_t))} {
  side_.ref().fill(word_.data(), 0, word_.size_bytes());
  side_.ref().synchronize();
}

nccl_barrier_word::~nccl_barrier_word() {
  return_or_report("the word of an NCCL barrier", [this] {
    side_.ref().wait(last_use_);
    word_.note_use(side_);
  });
}

} // namespace troupe
