#include <troupe/device/graph.hpp>
#include <troupe/device/memory/leak_report.hpp>

#include <utility>

namespace troupe {

graph::graph(graph&& other) noexcept
  : device_{std::move(other.device_)}, native_{std::exchange(other.native_, nullptr)} {}

graph& graph::operator=(graph&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(native_, other.native_);
  return *this;
}

graph::~graph() {
  if (native_ == nullptr) return;
  return_or_report("a graph", [this] { device_->api().destroy_graph(device_->id(), native_); });
}

void graph::launch(stream_ref stream) const {
  device_->api().launch_graph(device_->id(), native_, stream.native());
}

stream_capture::stream_capture(std::shared_ptr<device> where, stream_ref stream)
  : device_{std::move(where)}, stream_{stream.native()} {
  device_->api().begin_capture(device_->id(), stream_);
}

stream_capture::~stream_capture() {
  if (!open_) return;
  try {
    static_cast<void>(end());
  } catch (const exception&) { // the graph was to be discarded anyway
  }
}

graph stream_capture::end() {
  open_ = false;
  return {device_, device_->api().end_capture(device_->id(), stream_)};
}

} // namespace troupe
