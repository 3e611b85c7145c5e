/// What Python gives as memory: tensors of other libraries, and troupe's own buffers.
#pragma once

#include "deferred_release.hpp"

#include <troupe/collectives/operation/dtype.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>
#include <troupe/runtime/interop/dlpack.hpp>

#include <pybind11/pybind11.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {
class world;
}

namespace troupe::python {

/// Memory of troupe's with a shape: troupe.Buffer.
struct shaped_buffer {
  buffer memory;
  dtype type = dtype::f32;
  std::vector<std::size_t> shape;
  bool is_virtual = false; ///< Of a virtual world.

  [[nodiscard]] std::size_t count() const noexcept;
};

/// Which stream fills an operand, so that the GPU waits for what is in it when the operand is asked with.
class stream_source {
public:
  /// Nothing to wait for.
  stream_source() = default;
  /// \p ask is called with the GIL for each request; it returns a CUDA stream's handle as an int.
  stream_source(std::shared_ptr<device> where, held_object ask) : where_{std::move(where)}, ask_{std::move(ask)} {}
  stream_source(std::shared_ptr<device> where, native_stream which) : where_{std::move(where)}, fixed_{which} {}

  [[nodiscard]] explicit operator bool() const noexcept { return where_ != nullptr; }
  /// The stream now. With the GIL.
  [[nodiscard]] stream_ref now() const;
  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept { return where_; }

private:
  std::shared_ptr<device> where_;
  held_object ask_;
  native_stream fixed_ = nullptr;
};

/// Memory as a request names it.
struct given_operand {
  buffer memory;
  dtype type = dtype::f32;
  std::vector<std::size_t> shape;
  std::size_t count = 0;
  shared_event ready{};       ///< From the import; the first request waits for it.
  stream_source source{};     ///< What later requests wait for, and the first where there is no event.
  bool is_virtual = false;    ///< Of a virtual world.
  bool is_host_array = false; ///< Imported from host memory, which an empty array does not name.
};

/// One stream of each device, that producers are told of as the consumer's. With the GIL.
class import_streams {
public:
  [[nodiscard]] stream_ref of(const std::shared_ptr<device>& where);

private:
  std::map<const device*, stream> made_;
};

/// \p what (a troupe.Buffer, or anything with __dlpack__) as memory of rank \p whom. It is held until no request uses
/// it. \p as: its elements' type where DLPack cannot say it; as large as its own. \p streams: "producer", None, a
/// handle. \p use: whether any request may write it. Order: a CUDA tensor of PyTorch or CuPy is ready behind their
/// current stream of its device; one of another library behind what its __dlpack__ makes a stream of troupe's wait for.
/// Errors: invalid_argument, unsupported, wrong_device; and what __dlpack__ raises.
[[nodiscard]] given_operand import_operand(const world& where, import_streams& streams_of, rank whom,
                                           const pybind11::object& what, std::optional<dtype> as,
                                           const pybind11::object& streams, dlpack_use use);

/// The same for a world without a runtime (a virtual one): a troupe.Buffer, or what has Python's buffer protocol.
[[nodiscard]] given_operand import_host_operand(const std::shared_ptr<device>& where, const pybind11::object& what,
                                                std::optional<dtype> as, dlpack_use use);

/// The dtype that \p name means: troupe's ("f32") or NumPy's and PyTorch's ("float32", numpy.float32, torch.float32).
[[nodiscard]] dtype dtype_of(const pybind11::object& name);
/// NumPy's name; of what NumPy lacks, PyTorch's.
[[nodiscard]] std::string long_name_of(dtype type);

void bind_operands(pybind11::module_& module);

} // namespace troupe::python
