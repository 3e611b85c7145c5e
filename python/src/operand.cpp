#include "operand.hpp"

#include "failure.hpp"

#include <troupe/runtime/interop/dlpack.hpp>
#include <troupe/runtime/world.hpp>

#include <dlpack/dlpack.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

namespace troupe::python {

namespace py = pybind11;

namespace {

std::size_t product_of(const std::vector<std::size_t>& shape) noexcept {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>{});
}

/// A tensor whose own deleter is called with the GIL, whoever lets go of it.
struct deferred_tensor {
  DLManagedTensor shown{};
  DLManagedTensor* inner = nullptr;
};

owned_dlpack defer_deletion(DLManagedTensor* inner) {
  auto made = std::make_unique<deferred_tensor>();
  made->shown.dl_tensor = inner->dl_tensor;
  made->inner = inner;
  made->shown.manager_ctx = made.get();
  made->shown.deleter = [](DLManagedTensor* self) {
    release_later(
        [](void* what) {
          const std::unique_ptr<deferred_tensor> ended{static_cast<deferred_tensor*>(what)};
          if (ended->inner->deleter != nullptr) ended->inner->deleter(ended->inner);
        },
        self->manager_ctx);
  };
  return owned_dlpack{&made.release()->shown};
}

/// Takes the tensor out of \p capsule.
owned_dlpack take_capsule(const py::object& capsule) {
  auto* const inner = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (inner == nullptr) throw py::error_already_set{};
  owned_dlpack made = defer_deletion(inner);
  if (PyCapsule_SetName(capsule.ptr(), "used_dltensor") != 0) throw py::error_already_set{};
  return made;
}

/// PyTorch, where the program has imported it.
struct torch_functions {
  py::object tensor, to_dlpack, stream_of;
};
const torch_functions* find_torch() {
  static torch_functions* found = nullptr; // never destroyed: the interpreter may have ended by then
  if (found != nullptr) return found;
  const auto modules = py::module_::import("sys").attr("modules").cast<py::dict>();
  if (!modules.contains("torch") || !py::hasattr(modules["torch"], "Tensor")) return nullptr;
  const py::object helper = py::module_::import("troupe._torch");
  found = new torch_functions{modules["torch"].attr("Tensor"), helper.attr("to_dlpack"), helper.attr("stream_source")};
  return found;
}

native_stream handle_of(const py::handle& number) {
  return reinterpret_cast<native_stream>(py::cast<std::uintptr_t>(number)); // NOLINT: as CUDA's own handles are passed
}

void reinterpret(given_operand& one, std::optional<dtype> as) {
  if (!as) return;
  if (size_bytes(*as) != size_bytes(one.type))
    throw invalid("dtype is " + long_name_of(*as) + " with " + std::to_string(size_bytes(*as)) +
                  " bytes, and the tensor's elements have " + std::to_string(size_bytes(one.type)));
  one.type = *as;
}

given_operand from_buffer(const shaped_buffer& own) {
  return {
      .memory = own.memory, .type = own.type, .shape = own.shape, .count = own.count(), .is_virtual = own.is_virtual};
}

/// What \p streams says; none: "producer".
std::optional<stream_source> chosen_source(const std::shared_ptr<device>& on, const py::object& streams) {
  if (streams.is_none()) return stream_source{};
  if (py::isinstance<py::str>(streams)) {
    if (py::cast<std::string>(streams) == "producer") return {};
    throw invalid("stream is '" + py::cast<std::string>(streams) +
                  "': give \"producer\", None (the tensor is ready), or a CUDA stream");
  }
  if (py::isinstance<py::int_>(streams)) return stream_source{on, handle_of(streams)};
  for (const char* name : {"cuda_stream", "ptr"}) // of PyTorch, of CuPy
    if (py::hasattr(streams, name)) return stream_source{on, handle_of(streams.attr(name))};
  throw invalid("stream is a " + py::cast<std::string>(py::str(py::type::of(streams))) +
                ": give \"producer\", None (the tensor is ready), an int, or a stream of PyTorch or CuPy");
}

} // namespace

std::size_t shaped_buffer::count() const noexcept {
  return product_of(shape);
}

stream_ref stream_source::now() const {
  if (!ask_) return {*where_, fixed_};
  return {*where_, handle_of(ask_.get()())};
}

stream_ref import_streams::of(const std::shared_ptr<device>& where) {
  auto found = made_.find(where.get());
  if (found == made_.end()) found = made_.emplace(where.get(), stream{where}).first;
  return found->second.ref();
}

given_operand import_operand(const world& where, import_streams& streams_of, rank whom, const py::object& what,
                             std::optional<dtype> as, const py::object& streams) {
  if (py::isinstance<shaped_buffer>(what)) {
    given_operand own = from_buffer(what.cast<const shaped_buffer&>());
    reinterpret(own, as);
    return own;
  }
  if (!py::hasattr(what, "__dlpack__"))
    throw invalid("a " + py::cast<std::string>(py::str(py::type::of(what).attr("__name__"))) +
                  " is no tensor: give what has __dlpack__ (of NumPy, PyTorch, CuPy, JAX) or a troupe.Buffer");
  const std::shared_ptr<device>& on = where.device_of(whom);
  const py::tuple lives = what.attr("__dlpack_device__")();
  const bool on_cuda = py::cast<int>(py::object{lives[0]}) == kDLCUDA;
  const torch_functions* const torch = find_torch();
  const bool is_torch = torch != nullptr && py::isinstance(what, torch->tensor);

  std::optional<stream_source> source = on_cuda ? chosen_source(on, streams) : stream_source{};
  std::optional<stream_ref> produced_on;
  py::object capsule;
  if (is_torch) {
    capsule = torch->to_dlpack(what);
    if (!source) source = stream_source{on, held_object{torch->stream_of(what)}};
  } else if (!on_cuda) {
    capsule = what.attr("__dlpack__")();
  } else if (source) { // the caller knows better than the producer
    capsule = what.attr("__dlpack__")(py::arg("stream") = -1);
  } else {
    produced_on = streams_of.of(on);
    capsule = what.attr("__dlpack__")(
        py::arg("stream") = reinterpret_cast<std::uintptr_t>(produced_on->native())); // NOLINT: a handle as a number
    source = stream_source{on, native_stream{nullptr}};
  }
  const tensor made = from_dlpack(where, take_capsule(capsule), produced_on);
  given_operand one{.memory = made.memory,
                    .type = made.type,
                    .shape = made.shape,
                    .count = made.count(),
                    .ready = made.ready,
                    .source = std::move(*source)};
  reinterpret(one, as);
  return one;
}

given_operand import_host_operand(const std::shared_ptr<device>& where, const py::object& what,
                                  std::optional<dtype> as) {
  given_operand one;
  one.is_virtual = true;
  if (py::isinstance<shaped_buffer>(what)) {
    one = from_buffer(what.cast<const shaped_buffer&>());
    reinterpret(one, as);
    return one;
  }
  const auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(what.ptr(), view.get(), PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE | PyBUF_FORMAT) != 0)
    throw py::error_already_set{};
  const auto drop = std::unique_ptr<Py_buffer, void (*)(Py_buffer*)>{view.get(), &PyBuffer_Release};
  one.type = dtype_of(py::module_::import("troupe._dtypes")
                          .attr("name_of_format")(view->format == nullptr ? "B" : view->format, view->itemsize));
  for (int i = 0; i < view->ndim; ++i) one.shape.push_back(static_cast<std::size_t>(view->shape[i]));
  one.count = product_of(one.shape);
  const auto held = held_object{py::memoryview{what}}; // which keeps the memory where it is
  const auto size = static_cast<std::size_t>(view->len);
  const bool is_device = size > 0 && where->api().describe(view->buf).kind == memory_kind::device;
  one.memory =
      is_device ? adopt(where, view->buf, size, held.owner()) : adopt_host(where, view->buf, size, held.owner());
  reinterpret(one, as);
  return one;
}

} // namespace troupe::python
