#include <troupe/device/device.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

std::shared_ptr<device> device::open(std::shared_ptr<driver> api, device_id id) {
  const int count = api->device_count();
  if (id.value() < 0 || id.value() >= count)
    throw exception{errc::missing, "there is no device " + to_string(id) + ": the " + std::string{api->name()} +
                                       " driver has " + std::to_string(count) + " (numbered from 0)"};
  api->open(id);
  return std::make_shared<device>(std::move(api), id);
}

device::device(std::shared_ptr<driver> api, device_id id) : api_{std::move(api)}, id_{id} {}

device_epoch device::current_epoch() const noexcept {
  return device_epoch{epoch_.load(std::memory_order_acquire)};
}

bool device::reaches(device_id other) const {
  if (other == id_) return true;
  const std::lock_guard lock{peers_guard_};
  const auto found = std::ranges::find(peers_, other, &std::pair<device_id, bool>::first);
  if (found != peers_.end()) return found->second;
  return peers_.emplace_back(other, api_->describe_peer(id_, other).access).second;
}

void device::declare_memory_lost() noexcept {
  epoch_.fetch_add(1, std::memory_order_acq_rel);
}

} // namespace troupe
