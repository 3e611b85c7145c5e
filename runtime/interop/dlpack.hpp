/// Exchanges tensors with other libraries through DLPack without copies: imports their tensors as operands, and exports
/// troupe's memory as tensors. This header does not include DLPack's header. If troupe was built without DLPack,
/// imports and exports throw errc::unsupported. (docs/interop.md)
#pragma once

#include <troupe/device/stream.hpp>
#include <troupe/runtime/interop/views.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

struct DLManagedTensor; // <dlpack/dlpack.h>: the unversioned form, which every DLPack has
// DLPack 1.0. If the installed header is older: <troupe/runtime/interop/dlpack_versioned.hpp>
struct DLManagedTensorVersioned;

namespace troupe {

class world;

/// Returns whether this troupe was built with DLPack.
[[nodiscard]] bool has_dlpack() noexcept;

/// Returns a tensor to its producer.
struct dlpack_deleter {
  /// Calls the tensor's own deleter, if it has one.
  void operator()(DLManagedTensor* tensor) const noexcept;
  /// Calls the deleter of a versioned tensor, if it has one.
  void operator()(DLManagedTensorVersioned* tensor) const noexcept;
};
/// Owns a DLPack tensor, which must be deleted once. release() transfers ownership.
using owned_dlpack = std::unique_ptr<DLManagedTensor, dlpack_deleter>;
using owned_versioned_dlpack = std::unique_ptr<DLManagedTensorVersioned, dlpack_deleter>;

/// How requests use the memory of an imported tensor. Nothing else enforces read-only memory, because operands do not
/// carry this property.
enum class dlpack_use : std::uint8_t {
  any,    ///< Any request may write it. A read-only tensor is refused.
  source, ///< The caller ensures that no request writes it, neither in place nor as a destination.
};

/// Imports \p from as memory for requests of the ranks of \p where.
///
/// Shapes: row-major without gaps (strides of dimensions of extent 1 are ignored). Others are refused.
/// Order: \p produced_on is the stream that fills the tensor. `ready` is then an event recorded there now, and requests
/// wait for it on the device. Without it, the tensor must be ready.
/// Lifetime: takes ownership of \p from, which is deleted once, when the last handle to its memory is destroyed, on any
/// thread. This may be a thread of troupe, which answers no request meanwhile. A tensor without elements is deleted
/// immediately. On an error the caller still owns it.
/// Errors: invalid_argument (null, gaps, an address that is not aligned to elements, an invalid shape), unsupported
/// (its dtype or device type), wrong_device (no rank of this process is on its device).
/// Threads: any.
[[nodiscard]] tensor from_dlpack(const world& where, DLManagedTensor* from, std::optional<stream_ref> produced_on = {});
/// The same, but \p from is also deleted on an error.
[[nodiscard]] tensor from_dlpack(const world& where, owned_dlpack from, std::optional<stream_ref> produced_on = {});
/// The same for versioned tensors, which may be marked read-only.
///
/// Errors: also invalid_argument (it is read-only and \p use is any), unsupported (its major version is not 1).
[[nodiscard]] tensor from_dlpack(const world& where, DLManagedTensorVersioned* from,
                                 std::optional<stream_ref> produced_on = {}, dlpack_use use = dlpack_use::any);
/// The same, but \p from is also deleted on an error.
[[nodiscard]] tensor from_dlpack(const world& where, owned_versioned_dlpack from,
                                 std::optional<stream_ref> produced_on = {}, dlpack_use use = dlpack_use::any);

/// The consumer of an exported tensor, and the point from which it may read.
struct dlpack_reader {
  /// The stream on which the tensor is used. It must live as long as the tensor: when the tensor is deleted, memory of
  /// troupe's pools is reused only behind the work that is in the stream then. If the stream is in capture, keep a
  /// handle of the memory for as long as the graph exists; memory without one is never released. Empty: the consumer
  /// waits for its own work before it deletes the tensor.
  std::optional<stream_ref> stream{};
  /// An event that the stream waits for on the device: launch_mark::behind of the request that produces the values.
  /// Null: the values are ready (the request has been answered).
  shared_event behind{};
};

/// Exports the first elements of \p memory as a tensor of \p shape, row-major. Device memory is marked kDLCUDA. Host
/// memory is marked kDLCPU, pinned or not, because most consumers refuse kDLCUDAHost. With the mock, whose devices are
/// simulated, all memory is marked kDLCPU.
///
/// Units: \p shape in elements; empty: one element.
/// Lifetime: the result holds \p memory until it is deleted, by any thread.
/// Errors: invalid_argument (a negative extent, more than the buffer holds, an address that is not aligned to elements,
/// `behind` without a stream), unsupported (fp8, for which this DLPack has no code), wrong_device (a stream of another
/// device).
/// Threads: any.
[[nodiscard]] owned_dlpack to_dlpack(const buffer& memory, dtype type, std::span<const std::int64_t> shape,
                                     const dlpack_reader& reader = {});
/// The same with the type and shape of \p exported. If \p reader names no event, its `ready` is used.
[[nodiscard]] owned_dlpack to_dlpack(const tensor& exported, dlpack_reader reader = {});
/// The same as versioned tensors: version 1.0, or 1.1 for fp8, which is accepted here. They are writable and not
/// copies.
[[nodiscard]] owned_versioned_dlpack to_versioned_dlpack(const buffer& memory, dtype type,
                                                         std::span<const std::int64_t> shape,
                                                         const dlpack_reader& reader = {});
[[nodiscard]] owned_versioned_dlpack to_versioned_dlpack(const tensor& exported, dlpack_reader reader = {});

/// A DLDevice, for consumers that ask for it before there is a tensor (Python's __dlpack_device__).
struct dlpack_device {
  int type = 0; ///< A DLDeviceType.
  int id = 0;

  friend bool operator==(const dlpack_device&, const dlpack_device&) = default;
};
/// Returns the device that to_dlpack() reports for \p memory.
[[nodiscard]] dlpack_device dlpack_device_of(const buffer& memory);

} // namespace troupe
