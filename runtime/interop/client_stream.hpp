/// Orders the work of a client's own stream and a rank's requests on the device: either can wait for the other.
#pragma once

#include <troupe/completion/reply/overlap.hpp>
#include <troupe/device/stream.hpp>
#include <troupe/runtime/interop/views.hpp>

#include <memory>

struct CUstream_st; // cudaStream_t and CUstream are pointers to it

namespace troupe {

class world;

/// A view of a client's stream. Lifetime: does not own the stream, which must outlive it. Threads: the caller orders
/// the calls on one stream.
class client_stream {
public:
  /// Wraps a stream of the device of rank \p target. CUDA's special streams are accepted too: cudaStreamLegacy (or
  /// null), and cudaStreamPerThread, which means the stream of the calling thread. Errors: invalid_argument (\p
  /// target), unsupported (a world of the mock, which has no CUDA streams).
  client_stream(const world& where, rank target, CUstream_st* yours);
  /// Wraps any stream of the driver: a troupe::stream, of the mock or of CUDA.
  client_stream(const world& where, rank target, native_stream yours);

  /// Returns the stream itself.
  [[nodiscard]] stream_ref ref() const noexcept { return {*device_, native_}; }
  /// Records an event behind the work that is now in the stream, for operand::ready.
  [[nodiscard]] shared_event mark() const { return record_event(device_, ref()); }
  /// Returns \p memory as an operand that is ready behind the work that is now in the stream.
  [[nodiscard]] operand after(buffer memory) const { return {std::move(memory), mark()}; }

  /// Makes later work in the stream wait for this rank's part of a request (world::ask_overlapped). An event promises
  /// order, never success. Errors: invalid_argument (\p told has no part of this rank).
  void wait_for(const enqueued& told) const;
  /// Makes later work in the stream wait until \p values are ready.
  void wait_for(const operand& values) const;

private:
  rank rank_;
  std::shared_ptr<device> device_;
  native_stream native_;
};

} // namespace troupe
