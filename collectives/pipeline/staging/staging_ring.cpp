#include <troupe/collectives/pipeline/staging/staging_ring.hpp>

#include <utility>

namespace troupe {

staging_slot& staging_ring::take(std::size_t size_bytes, const maker& make, std::vector<buffer>& outgrown) {
  if (slots_.empty() || (slots_.size() < most_ && !order_.front()->free.reached())) {
    slots_.emplace_back(device_);
    order_.push_front(&slots_.back());
  }
  staging_slot& taken = *order_.front();
  order_.pop_front();
  order_.push_back(&taken);
  if (taken.memory.size_bytes() < size_bytes) {
    buffer larger = make(size_bytes);
    outgrown.push_back(std::exchange(taken.memory, std::move(larger)));
  }
  return taken;
}

} // namespace troupe
