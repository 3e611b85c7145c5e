/// Tensors of other libraries as operands, and troupe's memory as their tensors, by DLPack and without a copy.
/// DLPack's own header is not needed to include this one. A troupe that was built without it refuses all of this with
/// errc::unsupported. (docs/interop.md)
#pragma once

#include <troupe/device/stream.hpp>
#include <troupe/runtime/interop/tensor.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

struct DLManagedTensor;          // <dlpack/dlpack.h>: the form without a version, which every DLPack has
struct DLManagedTensorVersioned; // DLPack 1.0: <troupe/runtime/interop/dlpack_versioned.hpp> where the header is older

namespace troupe {

class world;

/// Whether this troupe was built with DLPack.
[[nodiscard]] bool has_dlpack() noexcept;

/// Gives a tensor back to who made it.
struct dlpack_deleter {
  /// Calls the tensor's own deleter, if it has one.
  void operator()(DLManagedTensor* tensor) const noexcept;
  /// The same, whatever version it is of.
  void operator()(DLManagedTensorVersioned* tensor) const noexcept;
};
/// The right to a DLPack tensor, and the duty to delete it once. release() hands both over.
using owned_dlpack = std::unique_ptr<DLManagedTensor, dlpack_deleter>;
using owned_versioned_dlpack = std::unique_ptr<DLManagedTensorVersioned, dlpack_deleter>;

/// What requests do with the memory of a tensor that is taken. Nothing else says whether they may: an operand does not.
enum class dlpack_use : std::uint8_t {
  any,    ///< Any may write it: a tensor that says that it is read-only is refused.
  source, ///< The caller sees to it that none writes it: neither in place nor as a destination.
};

/// Takes \p from over as memory for requests of \p where's ranks.
///
/// Shapes: row-major without gaps (strides of extents 1 do not matter); anything else is refused.
/// Order: where \p produced_on names the stream that fills the tensor, `ready` is an event recorded there now, and
/// requests wait for it on the device. Without, the tensor is ready.
/// Lifetime: \p from is taken, and deleted once, when the last handle to its memory goes, whichever thread that is on:
/// troupe's own too, which answers nobody meanwhile. Where there are no elements, it is deleted at once. On an error it
/// is not taken: it stays yours.
/// Errors: invalid_argument (null, gaps, no whole elements at its address, a shape that is none), unsupported (its
/// type, or where it lives), wrong_device (no rank of this process is on its device).
/// Threads: any.
[[nodiscard]] tensor from_dlpack(const world& where, DLManagedTensor* from, std::optional<stream_ref> produced_on = {});
/// The same, and \p from is deleted on an error, too.
[[nodiscard]] tensor from_dlpack(const world& where, owned_dlpack from, std::optional<stream_ref> produced_on = {});
/// The same of tensors with a version, which may say that they are read-only.
///
/// Errors: also invalid_argument (it is read-only, and \p use is any), unsupported (its major version is not 1).
[[nodiscard]] tensor from_dlpack(const world& where, DLManagedTensorVersioned* from,
                                 std::optional<stream_ref> produced_on = {}, dlpack_use use = dlpack_use::any);
/// The same, and \p from is deleted on an error, too.
[[nodiscard]] tensor from_dlpack(const world& where, owned_versioned_dlpack from,
                                 std::optional<stream_ref> produced_on = {}, dlpack_use use = dlpack_use::any);

/// Who reads what is lent, and from when on.
struct dlpack_reader {
  /// The stream that it is used on. It must live as long as what is lent: when that is deleted, memory of troupe's
  /// pools is reused only behind what is in the stream then. None: the reader has waited for its own work before.
  std::optional<stream_ref> stream{};
  /// The stream waits for this, on the device: launch_mark::behind of the request that makes the values. Null: they are
  /// there (the request has been answered).
  shared_event behind{};
};

/// Lends the front of \p memory as a tensor of \p shape, row-major. Device memory says kDLCUDA, and host memory kDLCPU,
/// pinned or not, since most readers refuse kDLCUDAHost; with the mock, whose devices are pretended, all says kDLCPU.
///
/// Units: \p shape in elements; none: one element.
/// Lifetime: what is returned holds \p memory until it is deleted, by any thread.
/// Errors: invalid_argument (a negative extent, more than the buffer holds, an address between elements, `behind`
/// without a stream), unsupported (fp8, which this DLPack has no code for), wrong_device (a stream of another device).
/// Threads: any.
[[nodiscard]] owned_dlpack to_dlpack(const buffer& memory, dtype type, std::span<const std::int64_t> shape,
                                     const dlpack_reader& reader = {});
/// The same with its own type and shape, behind its own `ready` where \p reader names no event.
[[nodiscard]] owned_dlpack to_dlpack(const tensor& lent, dlpack_reader reader = {});
/// The same as tensors with a version: 1.0, but 1.1 of fp8, which is not refused here. They may be written, and no copy
/// has been made.
[[nodiscard]] owned_versioned_dlpack to_versioned_dlpack(const buffer& memory, dtype type,
                                                         std::span<const std::int64_t> shape,
                                                         const dlpack_reader& reader = {});
[[nodiscard]] owned_versioned_dlpack to_versioned_dlpack(const tensor& lent, dlpack_reader reader = {});

/// As DLDevice, for those who are asked for it before there is a tensor (Python's __dlpack_device__).
struct dlpack_device {
  int type = 0; ///< A DLDeviceType.
  int id = 0;

  friend bool operator==(const dlpack_device&, const dlpack_device&) = default;
};
/// Where to_dlpack() says that \p memory lives.
[[nodiscard]] dlpack_device dlpack_device_of(const buffer& memory);

} // namespace troupe
