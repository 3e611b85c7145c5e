#include <troupe/device/spare_streams.hpp>

#include <utility>

namespace troupe {

void spare_streams::fill() {
  device_->api().enter_thread(device_->id());
  while (size() < wanted_) {
    stream made{device_}; // outside the lock: creation may wait for the device, and give_back() must not wait
    const std::lock_guard lock{guard_};
    kept_.push_back(std::move(made));
  }
}

void spare_streams::give_back() {
  std::vector<stream> all;
  {
    const std::lock_guard lock{guard_};
    all.swap(kept_);
  }
}

std::size_t spare_streams::size() const {
  const std::lock_guard lock{guard_};
  return kept_.size();
}

} // namespace troupe
