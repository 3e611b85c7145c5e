#include <troupe/collectives/backend/registered_region.hpp>
#include <troupe/device/memory/memory_pool.hpp>

#include <utility>

namespace troupe {

namespace {

class pooled_region final : public registered_region {
public:
  pooled_region(const std::shared_ptr<device>& where, buffer memory, std::string why_ordinary)
    : registered_region{where, memory.data(), memory.size_bytes()}, memory_{std::move(memory)} {
    ordinary(std::move(why_ordinary));
  }

private:
  buffer memory_;
};

} // namespace

std::shared_ptr<registered_region> make_pooled_region(const std::shared_ptr<device>& where, std::size_t size_bytes,
                                                      std::string why_ordinary) {
  return std::make_shared<pooled_region>(where, memory_pool::create(where)->allocate(size_bytes),
                                         std::move(why_ordinary));
}

} // namespace troupe
