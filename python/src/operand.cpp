#include "operand.hpp"

#include "failure.hpp"

#include <troupe/runtime/interop/dlpack_versioned.hpp>
#include <troupe/runtime/interop/views.hpp>
#include <troupe/runtime/world.hpp>

#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::python {

namespace py = pybind11;

namespace {

constexpr std::array<std::pair<std::string_view, dtype>, 12> long_names{{{"uint8", dtype::u8},
                                                                         {"int8", dtype::i8},
                                                                         {"int32", dtype::i32},
                                                                         {"uint32", dtype::u32},
                                                                         {"int64", dtype::i64},
                                                                         {"uint64", dtype::u64},
                                                                         {"float16", dtype::f16},
                                                                         {"float32", dtype::f32},
                                                                         {"float64", dtype::f64},
                                                                         {"bfloat16", dtype::bf16},
                                                                         {"float8_e4m3fn", dtype::f8e4m3},
                                                                         {"float8_e5m2", dtype::f8e5m2}}};

} // namespace

std::string long_name_of(dtype type) {
  for (const auto& [name, known] : long_names)
    if (known == type) return std::string{name};
  return {};
}

dtype dtype_of(const py::object& name) {
  // numpy.dtype("float32").name, numpy.float32.__name__, str(torch.float32) == "torch.float32"
  std::string text;
  if (py::isinstance<py::str>(name))
    text = py::cast<std::string>(name);
  else if (py::hasattr(name, "name"))
    text = py::cast<std::string>(py::str(name.attr("name")));
  else if (py::hasattr(name, "__name__"))
    text = py::cast<std::string>(py::str(name.attr("__name__")));
  else
    text = py::cast<std::string>(py::str(name));
  if (const std::size_t dot = text.rfind('.'); dot != std::string::npos) text.erase(0, dot + 1);
  for (const auto& [known, type] : long_names)
    if (known == text) return type;
  for (const dtype type : all_dtypes)
    if (to_string(type) == text) return type;
  std::string choices;
  for (const auto& [known, type] : long_names) choices += (choices.empty() ? "" : ", ") + std::string{known};
  throw exception{errc::unsupported, "unknown element type '" + text + "': choose one of " + choices};
}

std::optional<dtype> optional_dtype_of(const py::object& name) {
  return name.is_none() ? std::nullopt : std::optional{dtype_of(name)};
}

namespace {

std::size_t product_of(const std::vector<std::size_t>& shape) noexcept {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>{});
}

template <class Managed>
using owned_tensor = std::unique_ptr<Managed, dlpack_deleter>;

/// A tensor whose original deleter is called with the GIL, whichever thread releases the tensor.
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

/// The names of capsules of both forms until a consumer takes the tensor, and afterwards.
template <class Managed>
constexpr std::pair<const char*, const char*> capsule_names{"dltensor", "used_dltensor"};
template <>
constexpr std::pair<const char*, const char*> capsule_names<DLManagedTensorVersioned>{"dltensor_versioned",
                                                                                      "used_dltensor_versioned"};

/// Takes the tensor out of \p capsule and renames the capsule.
template <class Managed>
owned_tensor<Managed> take_capsule(const py::object& capsule) {
  const auto [name, used] = capsule_names<Managed>;
  auto* const inner = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (inner == nullptr || PyCapsule_SetName(capsule.ptr(), used) != 0) throw py::error_already_set{};
  try {
    return defer_deletion(inner);
  } catch (...) {
    PyCapsule_SetName(capsule.ptr(), name); // the capsule still owns it
    throw;
  }
}

tensor tensor_of(const world& where, const py::object& capsule, std::optional<stream_ref> produced_on, dlpack_use use) {
  const char* const versioned = capsule_names<DLManagedTensorVersioned>.first;
  if (PyCapsule_IsValid(capsule.ptr(), versioned) == 0)
    return from_dlpack(where, take_capsule<DLManagedTensor>(capsule), produced_on);
  auto* const shown = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), versioned));
  if (shown->version.major != 1) return from_dlpack(where, shown); // throws; the capsule still owns it
  auto given = take_capsule<DLManagedTensorVersioned>(capsule);
  if (use != dlpack_use::source && (given->flags & dlpack_is_copied) != 0)
    throw invalid("the tensor's library has exported a copy of it, so the result would not reach the tensor: give a "
                  "tensor as out that is exported without a copy");
  return from_dlpack(where, std::move(given), produced_on, use);
}

/// Calls __dlpack__ and returns the capsule, which has a version if the producer supports it. Types without this
/// support are remembered, except heap types, which may be destroyed.
py::object ask_for_capsule(const py::object& what, const py::dict& given) {
  static auto& without_versions = *new std::set<const PyTypeObject*>; // never destroyed: the interpreter may have ended
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

/// A library whose current streams troupe can determine: the module \p helper defines to_dlpack() and stream_source().
struct known_library {
  const char* name;
  const char* type;
  const char* helper;
  py::object array{}, to_dlpack{}, stream_of{};
};

/// Returns the known library of \p what if the program has imported it, or null.
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

/// Returns whether \p what is a JAX array. Its memory is immutable, which DLPack without a version cannot express.
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

/// Returns the stream that \p streams specifies, or nothing for "producer".
std::optional<stream_source> chosen_source(const std::shared_ptr<device>& on, const py::object& streams) {
  if (streams.is_none()) return stream_source{};
  if (py::isinstance<py::str>(streams)) {
    if (py::cast<std::string>(streams) == "producer") return {};
    throw invalid("stream is '" + py::cast<std::string>(streams) +
                  "': give \"producer\", None (the tensor is ready), or a CUDA stream");
  }
  if (py::isinstance<py::int_>(streams)) return stream_source{on, handle_of(streams)};
  for (const char* name : {"cuda_stream", "ptr"}) // streams of PyTorch, of CuPy
    if (py::hasattr(streams, name)) return stream_source{on, handle_of(streams.attr(name))};
  throw invalid("stream is of type " + type_name_of(streams) +
                ": give \"producer\", None (the tensor is ready), an int, or a stream of PyTorch or CuPy");
}

} // namespace

std::size_t bytes_of(const std::vector<std::size_t>& shape, dtype type) {
  std::size_t bytes = size_bytes(type);
  bool is_empty = false;
  for (const std::size_t extent : shape) {
    is_empty = is_empty || extent == 0;
    if (extent != 0 && bytes > std::numeric_limits<std::ptrdiff_t>::max() / extent)
      throw invalid("shape is " + py::cast<std::string>(py::str(py::cast(shape))) + ", and no memory holds that many " +
                    long_name_of(type) + ": give a smaller shape");
    if (extent != 0) bytes *= extent;
  }
  return is_empty ? 0 : bytes;
}

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

given_operand import_remote(const shown_remote& what, std::optional<dtype> as) {
  const std::optional<dtype> type = what.type ? what.type : as;
  if (!type)
    throw invalid("the remote buffer " + to_string(what.what) +
                  " has no element type: give dtype=, or take its view(dtype)");
  if (what.what.size_bytes % size_bytes(*type) != 0)
    throw invalid("the remote buffer has " + std::to_string(what.what.size_bytes) + " bytes, which is no multiple of " +
                  std::to_string(size_bytes(*type)) + ", the size of " + long_name_of(*type) + ": take a slice of it");
  const std::size_t count = what.what.size_bytes / size_bytes(*type);
  given_operand one{.memory = what.what.as_buffer(),
                    .type = *type,
                    .shape = {count},
                    .count = count,
                    .is_host_array = what.what.on_host};
  reinterpret(one, as);
  return one;
}

given_operand import_operand(const world& where, import_streams& streams_of, rank target, const py::object& what,
                             std::optional<dtype> as, const py::object& streams, dlpack_use use) {
  if (py::isinstance<shown_remote>(what)) return import_remote(what.cast<const shown_remote&>(), as);
  if (py::isinstance<shaped_buffer>(what)) {
    given_operand own = from_buffer(what.cast<const shaped_buffer&>());
    reinterpret(own, as);
    return own;
  }
  if (!py::hasattr(what, "__dlpack__"))
    throw invalid("an operand of type " + type_name_of(what) +
                  " is not a tensor: give an object with __dlpack__ (NumPy, PyTorch, CuPy, JAX) or a troupe.Buffer");
  const std::shared_ptr<device>& on = where.device_of(target);
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
  } else if (on_cuda && source) { // the caller specifies the stream, so the producer does nothing
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

namespace {

/// Memory of another owner that a simulated device uses in place.
class lent_block final : public memory_block {
public:
  lent_block(std::shared_ptr<device> where, void* address, std::size_t size_bytes, std::shared_ptr<void> owner)
    : memory_block{std::move(where), memory_kind::device, address, size_bytes}, owner_{std::move(owner)} {}

  void note_use(stream_ref) override {
    throw exception{errc::unsupported, "troupe does not control the reuse of memory of another owner: keep a handle"};
  }

private:
  std::shared_ptr<void> owner_;
};

} // namespace

given_operand import_address(const world& where, rank target, void* address, std::size_t count, dtype type,
                             const std::shared_ptr<void>& owner) {
  const std::shared_ptr<device>& on = where.device_of(target);
  const bool is_simulated = on->api().name() == "mock";
  const std::size_t size = count * size_bytes(type);
  return {.memory = is_simulated ? buffer{std::make_shared<lent_block>(on, address, size, owner)}
                                 : where.adopt_host(address, size, owner),
          .type = type,
          .shape = {count},
          .count = count,
          .is_host_array = !is_simulated};
}

given_operand import_device_address(const world& where, rank target, std::uintptr_t address, std::size_t count,
                                    dtype type, const held_object& owner) {
  void* const first = reinterpret_cast<void*>(address); // NOLINT(performance-no-int-to-ptr): as Python passes addresses
  tensor made = adopt_elements(where, target, first, count, type, owner.owner());
  return {.memory = std::move(made.memory), .type = type, .shape = {count}, .count = count};
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
  const auto held = held_object{py::memoryview{what}}; // prevents that the memory is moved
  const auto size = static_cast<std::size_t>(view->len);
  const bool is_device = size > 0 && where->api().describe(view->buf).kind == memory_kind::device;
  one.memory =
      is_device ? adopt(where, view->buf, size, held.owner()) : adopt_host(where, view->buf, size, held.owner());
  reinterpret(one, as);
  return one;
}

namespace {

/// Returns a capsule for __dlpack__. It deletes the tensor if no consumer takes it.
template <class Managed>
py::object make_capsule(std::unique_ptr<Managed, dlpack_deleter> lent) {
  constexpr const char* name = capsule_names<Managed>.first;
  PyObject* const made = PyCapsule_New(lent.get(), name, [](PyObject* capsule) {
    if (PyCapsule_IsValid(capsule, name) == 0) return;
    const std::unique_ptr<Managed, dlpack_deleter> untaken{static_cast<Managed*>(PyCapsule_GetPointer(capsule, name))};
  });
  if (made == nullptr) throw py::error_already_set{};
  static_cast<void>(lent.release());
  return py::reinterpret_steal<py::object>(made);
}

py::tuple device_tuple(const shaped_buffer& own) {
  const dlpack_device at = dlpack_device_of(own.memory);
  return py::make_tuple(at.type, at.id);
}

bool is_fp8(dtype type) noexcept {
  return type == dtype::f8e4m3 || type == dtype::f8e5m2;
}

/// Implements the array API's __dlpack__. The stream is ignored: values are complete once a request has been answered.
py::object export_dlpack(const shaped_buffer& own, const py::object&,
                         const std::optional<std::pair<int, int>>& max_version, const py::object& device,
                         const std::optional<bool>& copy) {
  if (!device.is_none() && !py::tuple{device}.equal(device_tuple(own)))
    throw py::buffer_error("a troupe.Buffer is exported on its own device, " +
                           py::cast<std::string>(py::str(device_tuple(own))) +
                           ": copy it to the other device yourself");
  if (copy.value_or(false))
    throw py::buffer_error("a troupe.Buffer is exported without a copy: copy the imported tensor");
  const std::vector<std::int64_t> shape{own.shape.begin(), own.shape.end()};
  // fp8 needs DLPack 1.1. Consumers of older versions do not support it.
  if (max_version && *max_version >= std::pair{1, is_fp8(own.type) ? 1 : 0})
    return make_capsule(to_versioned_dlpack(own.memory, own.type, shape));
  return make_capsule(to_dlpack(own.memory, own.type, shape));
}

bool is_visible(const buffer& memory) {
  return memory.on_host() || (memory && memory.where()->api().name() == "mock");
}

/// Returns NumPy's array interface, version 3, of memory that the CPU can access.
py::dict array_interface(const shaped_buffer& own) {
  if (!is_visible(own.memory))
    throw py::attribute_error("GPU memory cannot be read as a host array: copy it, or import it with DLPack");
  const std::string name = long_name_of(own.type); // begins with NumPy's kind: u, i or f
  if (own.type == dtype::bf16 || is_fp8(own.type))
    throw py::attribute_error("NumPy has no " + name + ": import it with DLPack");
  py::dict made;
  made["shape"] = py::tuple(py::cast(own.shape));
  made["typestr"] = "<" + name.substr(0, 1) + std::to_string(size_bytes(own.type));
  made["data"] = py::make_tuple(reinterpret_cast<std::uintptr_t>(own.memory.data()), false);
  made["version"] = 3;
  return made;
}

} // namespace

void bind_operands(py::module_& module) {
  py::class_<shaped_buffer, real_time_ptr<shaped_buffer>>(
      module, "Buffer",
      "Memory of troupe with a shape and a dtype: an operand of requests, and by __dlpack__ a tensor of other "
      "libraries, without a copy. Created by troupe.empty().")
      .def_property_readonly(
          "shape", [](const shaped_buffer& own) { return py::tuple(py::cast(own.shape)); },
          "The lengths of its dimensions.")
      .def_property_readonly(
          "dtype", [](const shaped_buffer& own) { return long_name_of(own.type); },
          "The name of its element type, for example \"float32\".")
      .def_property_readonly(
          "nbytes", [](const shaped_buffer& own) { return own.count() * size_bytes(own.type); }, "Its size in bytes.")
      .def_property_readonly("size", &shaped_buffer::count, "The number of elements.")
      .def_property_readonly(
          "is_stale", [](const shaped_buffer& own) { return own.memory.stale(); },
          "Whether the device has lost this memory since it was allocated.")
      .def_property_readonly("__array_interface__", &array_interface)
      .def("__dlpack__", &export_dlpack, py::kw_only(), py::arg("stream") = py::none(),
           py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(), py::arg("copy") = py::none(),
           "Returns a DLPack capsule, with a version if max_version allows. The buffer's values are complete once the "
           "request that wrote them has been answered, so no stream of the consumer needs to wait.")
      .def("__dlpack_device__", &device_tuple)
      .def("__repr__", [](const py::object& self) {
        return "troupe.Buffer(shape=" + py::cast<std::string>(py::str(self.attr("shape"))) +
               ", dtype=" + py::cast<std::string>(self.attr("dtype")) + ")";
      });
  py::class_<shown_remote>(
      module, "RemoteBuffer",
      "Refers to memory that the process of a rank has exported (World.export_memory()), for requests to the whole "
      "world "
      "that another process makes. It holds no address, does not own the memory, and can be sent as text or pickled. A "
      "request that names memory which the exporter no longer holds is refused (StaleBuffer).")
      .def_static(
          "parse",
          [](const std::string& text, const py::object& type) {
            return shown_remote{parse_remote_buffer(text), optional_dtype_of(type)};
          },
          py::arg("text"), py::arg("dtype") = py::none(),
          "Returns the handle that str() has written. Errors: InvalidArgument.")
      .def_property_readonly(
          "exporter", [](const shown_remote& one) { return one.what.exporter.value(); },
          "The number of the exporter's rank when it exported the memory.")
      .def_property_readonly(
          "session", [](const shown_remote& one) { return one.what.session; },
          "Identifies the exporter's process in the world.")
      .def_property_readonly(
          "id", [](const shown_remote& one) { return one.what.id; }, "Identifies the memory in that process.")
      .def_property_readonly(
          "offset_bytes", [](const shown_remote& one) { return one.what.offset_bytes; },
          "The offset of its first byte in the exported memory.")
      .def_property_readonly(
          "size_bytes", [](const shown_remote& one) { return one.what.size_bytes; }, "Its size in bytes.")
      .def_property_readonly(
          "on_host", [](const shown_remote& one) { return one.what.on_host; }, "Whether it is host memory.")
      .def_property_readonly(
          "dtype",
          [](const shown_remote& one) {
            return one.type ? py::object{py::str(long_name_of(*one.type))} : py::object{py::none()};
          },
          "The element type of its use as an operand; None: requests name one (dtype=). It is not part of the text.")
      .def(
          "view",
          [](const shown_remote& one, const py::object& type) {
            return shown_remote{one.what, dtype_of(type)};
          },
          py::arg("dtype"), "Returns the handle with another element type.")
      .def(
          "slice",
          [](const shown_remote& one, const py::object& from, const py::object& length) {
            constexpr const char* wanted = "a number of bytes, 0 or more";
            return shown_remote{one.what.slice(argument<std::size_t>("from_bytes", from, wanted),
                                               argument<std::size_t>("length_bytes", length, wanted)),
                                one.type};
          },
          py::arg("from_bytes"), py::arg("length_bytes"),
          "Returns a part of it. Errors: InvalidArgument if the range exceeds it.")
      .def("__str__", [](const shown_remote& one) { return to_string(one.what); })
      .def("__repr__",
           [](const shown_remote& one) {
             return "troupe.RemoteBuffer(" + to_string(one.what) + (one.type ? ", " + long_name_of(*one.type) : "") +
                    ")";
           })
      .def("__eq__",
           [](const shown_remote& one, const py::object& other) {
             return py::isinstance<shown_remote>(other) && one.what == other.cast<const shown_remote&>().what;
           })
      .def("__hash__", [](const shown_remote& one) { return std::hash<std::string>{}(to_string(one.what)); })
      .def(py::pickle(
          [](const shown_remote& one) {
            return py::make_tuple(to_string(one.what), one.type ? long_name_of(*one.type) : std::string{});
          },
          [](const py::tuple& state) {
            const auto type = py::cast<std::string>(py::object{state[1]});
            return shown_remote{parse_remote_buffer(py::cast<std::string>(py::object{state[0]})),
                                type.empty() ? std::nullopt : std::optional{dtype_of(state[1])}};
          }));
  py::class_<given_operand, real_time_ptr<given_operand>>(module, "Operand")
      .def_property_readonly("dtype", [](const given_operand& one) { return long_name_of(one.type); })
      .def_property_readonly("shape", [](const given_operand& one) { return py::tuple(py::cast(one.shape)); });
}

} // namespace troupe::python
