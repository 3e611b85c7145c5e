/// Graphs: captured work of one device that can be launched repeatedly.
#pragma once

#include <troupe/device/device.hpp>
#include <troupe/device/stream.hpp>

#include <memory>
#include <utility>

namespace troupe {

/// Owns a graph. It does not hold the memory or other resources that its work refers to.
/// Lifetime: launches that are in flight when the graph is destroyed still run.
class graph {
public:
  graph(std::shared_ptr<device> where, native_graph native) noexcept
    : native_{native, handle_destroyer{std::move(where)}} {}

  /// Launches the graph as one piece of work in \p stream, which must be on the graph's device.
  void launch(stream_ref stream) const;

private:
  std::unique_ptr<opaque_graph, handle_destroyer> native_;
};

/// Captures a stream. Work enqueued in the stream goes into the graph that end() returns.
/// Threads: the thread that begins the capture must end it.
class stream_capture {
public:
  /// Begins the capture. Errors: invalid_argument (the stream is already being captured).
  stream_capture(std::shared_ptr<device> where, stream_ref stream);
  stream_capture(const stream_capture&) = delete;
  stream_capture& operator=(const stream_capture&) = delete;
  /// Discards the captured work if end() was not called.
  ~stream_capture();

  /// Ends the capture, even if it throws. Errors: invalid_argument (an operation that cannot be captured was
  /// requested).
  [[nodiscard]] graph end();

private:
  std::shared_ptr<device> device_;
  native_stream stream_;
  bool open_ = true;
};

} // namespace troupe
