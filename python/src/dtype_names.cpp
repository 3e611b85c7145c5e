#include "failure.hpp"
#include "operand.hpp"

#include <array>
#include <string>
#include <string_view>
#include <utility>

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

} // namespace troupe::python
