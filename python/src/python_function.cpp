#include "python_function.hpp"

#include "deferred_release.hpp"
#include "failure.hpp"
#include "operand.hpp"
#include "process_object.hpp"
#include "released_gil.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace troupe::python {

namespace py = pybind11;

namespace {

struct calls_in_progress {
  std::shared_mutex mutex; ///< Each call holds it shared.
  std::atomic<bool> closed = false;
};

/// Calls \p what. Returns the text of its exception, or nothing. The caller must hold the GIL.
std::string call_with_gil(const py::object& what, const rank_call& with) {
  try {
    py::list memory;
    for (const buffer& one : with.memory)
      memory.append(py::cast(shaped_buffer{.memory = one, .type = dtype::u8, .shape = {one.size_bytes()}}));
    what(with.self.value(), with.epoch.value(),
         reinterpret_cast<std::uintptr_t>(with.stream.native()), // NOLINT: a handle as a number
         memory, py::bytes{reinterpret_cast<const char*>(with.values.data()), with.values.size()}); // NOLINT: as text
    return {};
  } catch (py::error_already_set& raised) {
    const auto kind = py::cast<std::string>(py::str(raised.type().attr("__name__")));
    std::string text = kind + ": " + py::cast<std::string>(py::str(raised.value()));
    // On a thread of Python: writing to standard error may block.
    release_later(
        [](void* one) {
          const std::unique_ptr<py::error_already_set> kept{static_cast<py::error_already_set*>(one)};
          kept->discard_as_unraisable("a function of register_function()");
        },
        new py::error_already_set{raised});
    return text;
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

} // namespace

rank_function::work make_rank_function(std::string name, const py::object& what) {
  if (PyCallable_Check(what.ptr()) == 0)
    throw invalid("the function '" + name + "' is of type " + type_name_of(what) + ", which cannot be called");
  return [name = std::move(name), called = held_object{what}](const rank_call& with) {
    std::string failure;
    {
      auto& calls = process_object<calls_in_progress>();
      const std::shared_lock in_progress{calls.mutex};
      if (calls.closed)
        throw exception{errc::stopping, "Python's interpreter has ended, so no function in it can be called"};
      const py::gil_scoped_acquire with_gil;
      failure = call_with_gil(called.get(), with);
    }
    if (!failure.empty())
      throw exception{errc::internal,
                      "the function '" + name + "' of rank " + to_string(with.self) + " raised " + failure};
  };
}

void stop_calling() noexcept {
  interpreter_ends_here();
  auto& calls = process_object<calls_in_progress>();
  const released_gil released;
  calls.closed = true;
  const std::unique_lock none_in_progress{calls.mutex};
}

} // namespace troupe::python
