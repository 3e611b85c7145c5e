/// troupe.Buffer: memory of troupe's, lent to other libraries without a copy.
#include "failure.hpp"
#include "operand.hpp"

#include <troupe/runtime/interop/dlpack_versioned.hpp>

#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::python {

namespace py = pybind11;

namespace {

/// What capsules of each form are called until somebody takes them.
template <class Managed>
constexpr const char* capsule_name = "dltensor";
template <>
constexpr const char* capsule_name<DLManagedTensorVersioned> = "dltensor_versioned";

/// A capsule as __dlpack__ returns it, which deletes the tensor where nobody takes it.
template <class Managed>
py::object make_capsule(std::unique_ptr<Managed, dlpack_deleter> lent) {
  constexpr const char* name = capsule_name<Managed>;
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

/// The array API's __dlpack__. The stream is not looked at: the values are there once a request has been answered.
py::object lend(const shaped_buffer& own, const py::object&, const std::optional<std::pair<int, int>>& max_version,
                const py::object& device, const std::optional<bool>& copy) {
  if (!device.is_none() && !py::tuple{device}.equal(device_tuple(own)))
    throw py::buffer_error("a troupe.Buffer is exported on its own device, " +
                           py::cast<std::string>(py::str(device_tuple(own))) +
                           ": copy it to the other device yourself");
  if (copy.value_or(false))
    throw py::buffer_error("a troupe.Buffer is exported without a copy: copy the imported tensor");
  const std::vector<std::int64_t> shape{own.shape.begin(), own.shape.end()};
  // fp8 is of DLPack 1.1: readers of less would not know it.
  const bool is_fp8 = own.type == dtype::f8e4m3 || own.type == dtype::f8e5m2;
  if (max_version && *max_version >= std::pair{1, is_fp8 ? 1 : 0})
    return make_capsule(to_versioned_dlpack(own.memory, own.type, shape));
  return make_capsule(to_dlpack(own.memory, own.type, shape));
}

bool is_visible(const buffer& memory) {
  return memory.on_host() || (memory && memory.where()->api().name() == "mock");
}

/// NumPy's array interface, version 3: for memory that the CPU reads and writes.
py::dict array_interface(const shaped_buffer& own) {
  if (!is_visible(own.memory))
    throw py::attribute_error("GPU memory cannot be read as a host array: copy it, or import it with DLPack");
  const char* kind = "f";
  switch (own.type) {
    case dtype::u8:
    case dtype::u32:
    case dtype::u64: kind = "u"; break;
    case dtype::i8:
    case dtype::i32:
    case dtype::i64: kind = "i"; break;
    case dtype::f16:
    case dtype::f32:
    case dtype::f64: break;
    case dtype::bf16:
    case dtype::f8e4m3:
    case dtype::f8e5m2: throw py::attribute_error("NumPy has no " + long_name_of(own.type) + ": import it with DLPack");
  }
  py::dict made;
  py::list shape;
  for (const std::size_t extent : own.shape) shape.append(extent);
  made["shape"] = py::tuple(shape);
  made["typestr"] = "<" + std::string{kind} + std::to_string(size_bytes(own.type));
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
      .def_property_readonly("shape",
                             [](const shaped_buffer& own) {
                               py::list shape;
                               for (const std::size_t extent : own.shape) shape.append(extent);
                               return py::tuple(shape);
                             })
      .def_property_readonly("dtype", [](const shaped_buffer& own) { return long_name_of(own.type); })
      .def_property_readonly("nbytes", [](const shaped_buffer& own) { return own.count() * size_bytes(own.type); })
      .def_property_readonly("size", &shaped_buffer::count, "The number of elements.")
      .def_property_readonly(
          "is_stale", [](const shaped_buffer& own) { return own.memory.stale(); },
          "Whether the device has lost this memory since it was allocated.")
      .def_property_readonly("__array_interface__", &array_interface)
      .def("__dlpack__", &lend, py::kw_only(), py::arg("stream") = py::none(), py::arg("max_version") = py::none(),
           py::arg("dl_device") = py::none(), py::arg("copy") = py::none(),
           "A DLPack capsule, with a version where max_version allows. The buffer's values are there once the request "
           "that wrote them has been answered, so no stream of the consumer needs to wait.")
      .def("__dlpack_device__", &device_tuple)
      .def("__repr__", [](const py::object& self) {
        return "troupe.Buffer(shape=" + py::cast<std::string>(py::str(self.attr("shape"))) +
               ", dtype=" + py::cast<std::string>(self.attr("dtype")) + ")";
      });
  py::class_<given_operand, real_time_ptr<given_operand>>(module, "Operand")
      .def_property_readonly("count", [](const given_operand& one) { return one.count; })
      .def_property_readonly("dtype", [](const given_operand& one) { return long_name_of(one.type); })
      .def_property_readonly("on_host", [](const given_operand& one) { return one.memory.on_host(); })
      .def_property_readonly("shape", [](const given_operand& one) {
        py::list shape;
        for (const std::size_t extent : one.shape) shape.append(extent);
        return py::tuple(shape);
      });
  module.def("dtype_name", [](const py::object& name) { return long_name_of(dtype_of(name)); });
  module.def("has_dlpack", &has_dlpack);
}

} // namespace troupe::python
