/// Captured work of one device, to be launched again and again.
#pragma once

#include <troupe/device/device.hpp>
#include <troupe/device/stream.hpp>

#include <memory>

namespace troupe {

/// Owns a graph. It holds nothing of the memory, nor of anything else, that its work refers to.
/// Lifetime: work of it that is under way when it is destroyed runs on.
class graph {
public:
  graph(std::shared_ptr<device> where, native_graph native) noexcept : device_{std::move(where)}, native_{native} {}
  graph(graph&& other) noexcept;
  graph& operator=(graph&& other) noexcept;
  ~graph();

  /// Order: as one piece of work in \p stream, which is on the graph's device.
  void launch(stream_ref stream) const;

private:
  std::shared_ptr<device> device_;
  native_graph native_ = nullptr;
};

/// A stream in capture. What is enqueued in it goes into the graph that end() gives.
/// Threads: one; that which began it ends it.
class stream_capture {
public:
  /// Errors: invalid_argument (the stream is in capture already).
  stream_capture(std::shared_ptr<device> where, stream_ref stream);
  stream_capture(const stream_capture&) = delete;
  stream_capture& operator=(const stream_capture&) = delete;
  /// Without end(): drops what was captured.
  ~stream_capture();

  /// Errors: invalid_argument (something was asked that cannot be captured); the stream is out of capture all the same.
  [[nodiscard]] graph end();

private:
  std::shared_ptr<device> device_;
  native_stream stream_;
  bool open_ = true;
};

} // namespace troupe
