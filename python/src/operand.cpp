#include "operand.hpp"

#include "failure.hpp"

#include <troupe/runtime/interop/dlpack_versioned.hpp>
#include <troupe/runtime/world.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

namespace troupe::python {

namespace py = pybind11;

namespace {

std::size_t product_of(const std::vector<std::size_t>& shape) noexcept {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>{});
}

template <class Managed>
using owned_tensor = std::unique_ptr<Managed, dlpack_deleter>;

/// A tensor whose own deleter is called with the GIL, whoever lets go of it.
template <class Managed>
struct deferred_tensor {
  Managed shown;
  owned_tensor<Managed> inner;
};

template <class Managed>
owned_tensor<Managed> defer_deletion(Managed* inner) {
  std::unique_ptr<deferred_tensor<Managed>> made{new deferred_tensor<Managed>{*inner, {}}};
  made->inner.reset(inner);
  made->shown.manager_ctx = made.get();
  made->shown.deleter = [](Managed* self) {
    release_later([](void* what) { delete static_cast<deferred_tensor<Managed>*>(what); }, self->manager_ctx);
  };
  return owned_tensor<Managed>{&made.release()->shown};
}

/// Takes the tensor out of \p capsule, which is called \p used from then on.
template <class Managed>
owned_tensor<Managed> take_capsule(const py::object& capsule, const char* name, const char* used) {
  auto* const inner = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (inner == nullptr || PyCapsule_SetName(capsule.ptr(), used) != 0) throw py::error_already_set{};
  try {
    return defer_deletion(inner);
  } catch (...) {
    PyCapsule_SetName(capsule.ptr(), name); // it is the capsule's still
    throw;
  }
}

tensor tensor_of(const world& where, const py::object& capsule, std::optional<stream_ref> produced_on, dlpack_use use) {
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") == 0)
    return from_dlpack(where, take_capsule<DLManagedTensor>(capsule, "dltensor", "used_dltensor"), produced_on);
  auto* const shown = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
  if (shown->version.major != 1) return from_dlpack(where, shown); // which refuses it; it is the capsule's still
  auto given = take_capsule<DLManagedTensorVersioned>(capsule, "dltensor_versioned", "used_dltensor_versioned");
  if (use != dlpack_use::source && (given->flags & dlpack_is_copied) != 0)
    throw invalid("the tensor's library has exported a copy of it, so the result would not reach the tensor: give a "
                  "tensor as out that is exported without a copy");
  return from_dlpack(where, std::move(given), produced_on, use);
}

/// What its __dlpack__ returns: with a version where it knows of them. Types that do not are remembered, where they
/// live as long as Python does.
py::object ask_for_capsule(const py::object& what, const py::dict& given) {
  static auto& without_versions = *new std::set<const PyTypeObject*>; // never destroyed, as the interpreter may have
  const py::object ask = what.attr("__dlpack__");
  const PyTypeObject* const type = Py_TYPE(what.ptr());
  if (without_versions.contains(type)) return ask(**given);
  try {
    return ask(**given, py::arg("max_version") = py::make_tuple(1, 0));
  } catch (const py::error_already_set& failure) {
    if (!failure.matches(PyExc_TypeError)) throw;
  }
  py::object made = ask(**given);
  if (!PyType_HasFeature(Py_TYPE(what.ptr()), Py_TPFLAGS_HEAPTYPE)) without_versions.insert(type);
  return made;
}

/// A library that is asked for the stream of each of its arrays: the helper has to_dlpack() and stream_source().
struct known_library {
  const char* name;
  const char* type;
  const char* helper;
  py::object array{}, to_dlpack{}, stream_of{};
};

/// Whose \p what is, among those that the program has imported; none: another one's.
const known_library* find_library(const py::object& what) {
  static auto& known = *new std::array<known_library, 2>{
      {{"torch", "Tensor", "troupe._torch"}, {"cupy", "ndarray", "troupe._cupy"}}}; // never destroyed: see above
  py::object modules;
  for (known_library& one : known) {
    if (!one.array) {
      if (!modules) modules = py::module_::import("sys").attr("modules");
      const py::object imported = modules.attr("get")(one.name);
      if (imported.is_none() || !py::hasattr(imported, one.type)) continue;
      const py::object helper = py::module_::import(one.helper);
      one.to_dlpack = helper.attr("to_dlpack");
      one.stream_of = helper.attr("stream_source");
      one.array = imported.attr(one.type);
    }
    if (py::isinstance(what, one.array)) return &one;
  }
  return nullptr;
}

/// Whether \p what is an array of JAX, which are immutable and cannot say so without a version.
bool is_of_jax(const py::object& what) {
  const auto modules = py::module_::import("sys").attr("modules").cast<py::dict>();
  return modules.contains("jax") && py::hasattr(modules["jax"], "Array") &&
         py::isinstance(what, modules["jax"].attr("Array"));
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
                             std::optional<dtype> as, const py::object& streams, dlpack_use use) {
  if (py::isinstance<shaped_buffer>(what)) {
    given_operand own = from_buffer(what.cast<const shaped_buffer&>());
    reinterpret(own, as);
    return own;
  }
  if (!py::hasattr(what, "__dlpack__"))
    throw invalid("a " + py::cast<std::string>(py::str(py::type::of(what).attr("__name__"))) +
                  " is not a tensor: give an object with __dlpack__ (NumPy, PyTorch, CuPy, JAX) or a troupe.Buffer");
  const std::shared_ptr<device>& on = where.device_of(whom);
  const py::tuple lives = what.attr("__dlpack_device__")();
  const bool on_cuda = py::cast<int>(py::object{lives[0]}) == kDLCUDA;
  const known_library* const library = find_library(what);
  if (library == nullptr && use != dlpack_use::source && is_of_jax(what))
    throw invalid("an array of JAX is immutable, and this request would write it: give an out of another library, or a "
                  "troupe.Buffer (jax.dlpack.from_dlpack() imports it afterwards)");

  std::optional<stream_source> source = on_cuda ? chosen_source(on, streams) : stream_source{};
  std::optional<stream_ref> produced_on;
  py::dict asked;
  py::object capsule;
  if (library != nullptr) {
    capsule = library->to_dlpack(what);
    if (!source) source = stream_source{on, held_object{library->stream_of(what)}};
  } else if (on_cuda && source) { // the caller knows better than the producer
    asked["stream"] = -1;
  } else if (on_cuda) {
    produced_on = streams_of.of(on);
    asked["stream"] = reinterpret_cast<std::uintptr_t>(produced_on->native()); // NOLINT: a handle as a number
    source = stream_source{on, native_stream{nullptr}};
  }
  if (library == nullptr) capsule = ask_for_capsule(what, asked);
  const tensor made = tensor_of(where, capsule, produced_on, use);
  given_operand one{.memory = made.memory,
                    .type = made.type,
                    .shape = made.shape,
                    .count = made.count(),
                    .ready = made.ready,
                    .source = std::move(*source),
                    .is_host_array = !on_cuda};
  reinterpret(one, as);
  return one;
}

given_operand import_host_operand(const std::shared_ptr<device>& where, const py::object& what, std::optional<dtype> as,
                                  dlpack_use use) {
  given_operand one;
  one.is_virtual = true;
  if (py::isinstance<shaped_buffer>(what)) {
    one = from_buffer(what.cast<const shaped_buffer&>());
    reinterpret(one, as);
    return one;
  }
  const auto view = std::make_unique<Py_buffer>();
  const int written = use == dlpack_use::source ? 0 : PyBUF_WRITABLE;
  if (PyObject_GetBuffer(what.ptr(), view.get(), PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | written) != 0)
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
