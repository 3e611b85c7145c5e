/// Converts Python objects to operands: tensors of other libraries, and troupe's own buffers.
#pragma once

#include "deferred_release.hpp"

#include <troupe/collectives/operation/dtype.hpp>
#include <troupe/collectives/operation/remote_buffer.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>
#include <troupe/runtime/interop/dlpack.hpp>

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {
class world;
}

namespace troupe::python {

/// Memory of troupe with a shape: the Python class troupe.Buffer.
struct shaped_buffer {
  buffer memory;
  dtype type = dtype::f32;
  std::vector<std::size_t> shape;
  bool is_virtual = false; ///< Whether it belongs to a virtual world.

  [[nodiscard]] std::size_t count() const noexcept;
};

/// Returns the bytes of an array. Errors: invalid_argument if they exceed every memory.
[[nodiscard]] std::size_t bytes_of(const std::vector<std::size_t>& shape, dtype type);

/// Memory of another process: the Python class troupe.RemoteBuffer. The handle itself has no element type.
struct shown_remote {
  remote_buffer what;
  std::optional<dtype> type{};
};

/// The stream that fills an operand. On the GPU, each request waits for the work that is in the stream at that time.
class stream_source {
public:
  /// Constructs a source without a stream, for which no request waits.
  stream_source() = default;
  /// \p ask is called with the GIL for each request; it returns a CUDA stream's handle as an int.
  stream_source(std::shared_ptr<device> where, held_object ask) : where_{std::move(where)}, ask_{std::move(ask)} {}
  stream_source(std::shared_ptr<device> where, native_stream which) : where_{std::move(where)}, fixed_{which} {}

  [[nodiscard]] explicit operator bool() const noexcept { return where_ != nullptr; }
  /// Returns the current stream. The caller must hold the GIL.
  [[nodiscard]] stream_ref now() const;
  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept { return where_; }

private:
  std::shared_ptr<device> where_;
  held_object ask_;
  native_stream fixed_ = nullptr;
};

/// An operand of a request.
struct given_operand {
  buffer memory;
  dtype type = dtype::f32;
  std::vector<std::size_t> shape;
  std::size_t count = 0;
  shared_event ready{};       ///< The event of the import; the first request waits for it.
  stream_source source{};     ///< Later requests wait for it, and the first one if there is no event.
  bool is_virtual = false;    ///< Whether it belongs to a virtual world.
  bool is_host_array = false; ///< Whether it is host memory. The address of an empty array does not show this.
};

/// One stream per device, which is passed to producers as the consumer's stream. The caller must hold the GIL.
class import_streams {
public:
  [[nodiscard]] stream_ref of(const std::shared_ptr<device>& where);

private:
  std::map<const device*, stream> made_;
};

/// Imports \p what (a troupe.Buffer, a troupe.RemoteBuffer, or an object with __dlpack__) as memory of rank \p target.
/// It is held until no request uses it. \p as is the element type if DLPack cannot express it; it must have the same
/// size. \p streams is "producer", None or a stream. \p use states whether requests may write the memory. Stream order:
/// requests wait for the current stream of the tensor's device if it is a CUDA tensor of PyTorch or CuPy. For other
/// libraries, __dlpack__ makes a stream of troupe wait for the producer, and requests wait for that stream. Errors:
/// invalid_argument, unsupported, wrong_device; and exceptions of __dlpack__.
[[nodiscard]] given_operand import_operand(const world& where, import_streams& streams_of, rank target,
                                           const pybind11::object& what, std::optional<dtype> as,
                                           const pybind11::object& streams, dlpack_use use);

/// Imports \p count elements of host memory at \p address for rank \p target. A simulated device, which Gloo and the
/// mock have, uses them in place; others stage them. \p owner is held until no request uses them. The caller ensures
/// that the memory is aligned for \p type. Errors: those of world::adopt_host().
[[nodiscard]] given_operand import_address(const world& where, rank target, void* address, std::size_t count,
                                           dtype type, const std::shared_ptr<void>& owner);

/// Imports \p count elements at \p address, memory of the device of rank \p target or host memory. It is ready for use.
/// \p owner is held until no request uses it. Errors: wrong_device; those of world::adopt_host().
[[nodiscard]] given_operand import_device_address(const world& where, rank target, std::uintptr_t address,
                                                  std::size_t count, dtype type, const held_object& owner);

/// Imports \p what for a virtual world, which has no runtime: a troupe.Buffer, or an object with Python's buffer
/// protocol.
[[nodiscard]] given_operand import_host_operand(const std::shared_ptr<device>& where, const pybind11::object& what,
                                                std::optional<dtype> as, dlpack_use use);

/// Returns \p what as an operand. Errors: invalid_argument (neither it nor \p as has an element type, or the type does
/// not divide it).
[[nodiscard]] given_operand import_remote(const shown_remote& what, std::optional<dtype> as);

/// Returns the dtype of \p name: troupe's ("f32"), or NumPy's and PyTorch's ("float32", numpy.float32, torch.float32).
[[nodiscard]] dtype dtype_of(const pybind11::object& name);
/// Does the same; returns an empty optional for None.
[[nodiscard]] std::optional<dtype> optional_dtype_of(const pybind11::object& name);
/// Returns NumPy's name of \p type, or PyTorch's if NumPy does not have the type.
[[nodiscard]] std::string long_name_of(dtype type);

void bind_operands(pybind11::module_& module);

} // namespace troupe::python
