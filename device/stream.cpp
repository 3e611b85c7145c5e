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

void stream_ref::launch(const kernel_launch& one) const {
  device_->api().launch(device_->id(), native_, one);
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

void handle_destroyer::operator()(native_stream one) const noexcept {
  return_or_report("a stream", [&] { where->api().destroy_stream(where->id(), one); });
}

void handle_destroyer::operator()(native_event one) const noexcept {
  return_or_report("an event", [&] { where->api().destroy_event(where->id(), one); });
}

void handle_destroyer::operator()(native_graph one) const noexcept {
  return_or_report("a graph", [&] { where->api().destroy_graph(where->id(), one); });
}

stream::stream(const std::shared_ptr<device>& where)
  : native_{where->api().create_stream(where->id()), handle_destroyer{where}} {}

event::event(const std::shared_ptr<device>& where)
  : native_{where->api().create_event(where->id()), handle_destroyer{where}} {}

// NOLINTNEXTLINE(readability-make-member-function-const): it changes the event
void event::record(stream_ref stream) {
  where().api().record(where().id(), native(), stream.native());
}

bool event::reached() const {
  return where().api().query(native()) == progress::reached;
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
