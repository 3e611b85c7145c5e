#include <troupe/device/event.hpp>
#include <troupe/device/memory/leak_report.hpp>

#include <utility>

namespace troupe {

event::event(std::shared_ptr<device> where)
  : device_{std::move(where)}, native_{device_->api().create_event(device_->id())} {}

event::event(event&& other) noexcept
  : device_{std::move(other.device_)}, native_{std::exchange(other.native_, nullptr)} {}

event& event::operator=(event&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(native_, other.native_);
  return *this;
}

event::~event() {
  if (native_ == nullptr) return;
  return_or_report("an event", [this] { device_->api().destroy_event(device_->id(), native_); });
}

void event::record(stream_ref stream) {
  device_->api().record(device_->id(), native_, stream.native());
}

bool event::reached() const {
  return device_->api().query(native_) == progress::reached;
}

shared_event record_event(const std::shared_ptr<device>& where, stream_ref stream) {
  auto recorded = std::make_shared<event>(where);
  recorded->record(stream);
  return recorded;
}

} // namespace troupe
