/// A stream of the client's own beside a rank: it waits for requests, and requests wait for it, on the device.
#pragma once

#include <troupe/completion/reply/overlap.hpp>
#include <troupe/device/stream.hpp>
#include <troupe/runtime/interop/tensor.hpp>

#include <memory>

struct CUstream_st; // cudaStream_t and CUstream are pointers to it

namespace troupe {

class world;

/// Does not own the stream, which must outlive its use here. Calls on one stream are ordered by the caller.
class client_stream {
public:
  /// Of \p whom's device. With CUDA's own names for streams, too: cudaStreamLegacy (or null) and cudaStreamPerThread,
  /// which is that of the thread that calls.
  /// Errors: invalid_argument (\p whom), unsupported (the world is of the mock, which has no CUDA streams).
  client_stream(const world& where, rank whom, CUstream_st* yours);
  /// Any stream of the driver's: one of class stream, of the mock or of CUDA.
  client_stream(const world& where, rank whom, native_stream yours);

  /// The stream itself.
  [[nodiscard]] stream_ref ref() const noexcept { return {*device_, native_}; }
  /// A point behind the work now in it, for operand::ready.
  [[nodiscard]] shared_event mark() const { return record_event(device_, ref()); }
  /// \p memory as an operand that is ready behind the work now in it.
  [[nodiscard]] operand after(buffer memory) const { return {std::move(memory), mark()}; }

  /// Later work in it waits for that request's part of its rank (world::ask_overlapped). An event promises order,
  /// never success. Errors: invalid_argument (no part of this rank's in \p told).
  void wait_for(const enqueued& told) const;
  /// Later work in it waits until \p values are ready.
  void wait_for(const operand& values) const;

private:
  rank rank_;
  std::shared_ptr<device> device_;
  native_stream native_;
};

} // namespace troupe
