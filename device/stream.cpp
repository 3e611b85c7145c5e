#include <troupe/device/stream.hpp>

#include <troupe/device/memory/leak_report.hpp>

#include <utility>

namespace troupe {

void stream_ref::copy(void* to, const void* from, std::size_t size_bytes) const {
  if (size_bytes > 0) device_->api().copy(device_->id(), native_, to, from, size_bytes);
}

void stream_ref::fill(void* to, std::uint8_t value, std::size_t size_bytes) const {
  if (size_bytes > 0) device_->api().fill(device_->id(), native_, to, value, size_bytes);
}

void stream_ref::call(driver::host_function function, void* argument) const {
  device_->api().call(device_->id(), native_, function, argument);
}

void stream_ref::wait(const event& awaited) const {
  device_->api().wait(device_->id(), native_, awaited.native());
}

bool stream_ref::idle() const {
  return device_->api().query(device_->id(), native_) == progress::reached;
}

void stream_ref::synchronize() const {
  device_->api().synchronize(device_->id(), native_);
}

stream::stream(std::shared_ptr<device> where)
  : device_{std::move(where)}, native_{device_->api().create_stream(device_->id())} {}

stream::stream(stream&& other) noexcept
  : device_{std::move(other.device_)}, native_{std::exchange(other.native_, nullptr)} {}

stream& stream::operator=(stream&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(native_, other.native_);
  return *this;
}

stream::~stream() {
  if (native_ == nullptr) return;
  return_or_report("a stream", [this] { device_->api().destroy_stream(device_->id(), native_); });
}

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

void spare_streams::fill() {
  device_->api().enter_thread(device_->id());
  while (size() < wanted_) {
    stream made{device_}; // outside the lock: creation may wait for the device, and give_back() must not wait
    const std::lock_guard lock{mutex_};
    kept_.push_back(std::move(made));
  }
}

void spare_streams::give_back() {
  std::vector<stream> all;
  {
    const std::lock_guard lock{mutex_};
    all.swap(kept_);
  }
}

std::size_t spare_streams::size() const {
  const std::lock_guard lock{mutex_};
  return kept_.size();
}

} // namespace troupe
