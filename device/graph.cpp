#include <troupe/device/graph.hpp>

#include <utility>

namespace troupe {

void graph::launch(stream_ref stream) const {
  const device& where = *native_.get_deleter().where;
  where.api().launch_graph(where.id(), native_.get(), stream.native());
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
