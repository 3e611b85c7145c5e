/// Defines the extension module troupe._troupe. The public interface is the Python package around it.
#include "capture_relay.hpp"
#include "deferred_release.hpp"
#include "direct_requests.hpp"
#include "failure.hpp"
#include "operand.hpp"
#include "python_function.hpp"
#include "reply.hpp"
#include "request.hpp"
#include "runtime_binding.hpp"
#include "world_binding.hpp"

PYBIND11_MODULE(_troupe, module) {
  namespace python = troupe::python;
  module.doc() = "The extension module of the package troupe. Use the package.";
  module.attr("version") = TROUPE_VERSION;
  python::translate_exceptions();
  python::bind_operands(module);
  python::bind_replies(module);
  python::bind_operations(module);
  python::bind_captures(module);
  python::bind_direct_requests(module);
  python::bind_worlds(module);
  python::bind_runtimes(module);
  python::bind_drivers(module);
  python::bind_controllers(module);
  python::bind_testing(module);
  module.def("stop_calling", &python::stop_calling);
  module.def("stop_releasing", &python::stop_releasing);
}
