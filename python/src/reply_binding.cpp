#include "reply_binding.hpp"

#include "failure.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>

namespace troupe::python {

namespace py = pybind11;

namespace {

std::atomic<std::int64_t> result_spin_ns{50'000};

/// Waits without the GIL, and looks for signals (Ctrl-C) now and then. Not by pybind11's guard, whose destructor may
/// not end its thread, as the interpreter's end does to threads that come back.
bool wait_without_gil(reply& one, nanoseconds spin, nanoseconds at_most, bool for_ever) {
  if (one.is_done()) return true;
  constexpr std::chrono::milliseconds between_looks{100};
  const time_point until = for_ever ? time_point::max() : later(std::chrono::steady_clock::now(), at_most);
  for (;;) {
    const time_point next = std::min(until, later(std::chrono::steady_clock::now(), between_looks));
    PyThreadState* const state = PyEval_SaveThread();
    const bool done = one.wait(spin, next);
    PyEval_RestoreThread(state);
    if (done) return true;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set{};
    if (std::chrono::steady_clock::now() >= until) return false;
    spin = nanoseconds{0};
  }
}

py::object completion_of(const reply& one) {
  return py::cast(shown_completion{std::get<completion>(one.result()), one.outputs().get()});
}

void require_done(reply& one, const py::object& timeout) {
  const bool for_ever = timeout.is_none();
  const nanoseconds at_most = for_ever ? nanoseconds{0} : duration_of(timeout, nanoseconds{0});
  if (wait_without_gil(one, nanoseconds{result_spin_ns.load(std::memory_order_relaxed)}, at_most, for_ever)) return;
  PyErr_SetString(PyExc_TimeoutError,
                  "the request has not been answered yet; it continues, and its reply can be waited for again");
  throw py::error_already_set{};
}

double seconds_of(time_point when) {
  return std::chrono::duration<double>(when.time_since_epoch()).count();
}

} // namespace

nanoseconds duration_of(const py::object& span, nanoseconds otherwise) {
  if (span.is_none()) return otherwise;
  const double seconds =
      py::hasattr(span, "total_seconds") ? py::cast<double>(span.attr("total_seconds")()) : py::cast<double>(span);
  if (!(seconds >= 0) || seconds > 9e9)
    throw invalid("a duration is " + std::to_string(seconds) + " s: give seconds, 0 or more, or a timedelta");
  return nanoseconds{static_cast<std::int64_t>(std::llround(seconds * 1e9))};
}

void bind_replies(py::module_& module) {
  py::class_<shown_completion>(module, "Completion", "The reply to a request that succeeded.")
      .def_property_readonly(
          "ticket", [](const shown_completion& one) { return one.what.ticket.value(); },
          "Identifies the request at the rank or world that accepted it.")
      .def_property_readonly("epoch", [](const shown_completion& one) { return one.what.epoch.value(); })
      .def_property_readonly(
          "launch", [](const shown_completion& one) { return one.what.launch; },
          "Its place in its rank's order, from 1; 0 for a request to all ranks.")
      .def_property_readonly(
          "queued", [](const shown_completion& one) { return seconds_of(one.what.times.queued); },
          "When it was accepted, in seconds of time.monotonic().")
      .def_property_readonly("launched",
                             [](const shown_completion& one) { return seconds_of(one.what.times.launched); })
      .def_property_readonly("done", [](const shown_completion& one) { return seconds_of(one.what.times.done); })
      .def_readonly("out", &shown_completion::outputs, "The written tensors, as given or allocated.")
      .def("__repr__", [](const shown_completion& one) {
        return "troupe.Completion(ticket=" + to_string(one.what.ticket) + ", epoch=" + to_string(one.what.epoch) + ")";
      });

  py::class_<reply, std::shared_ptr<reply>>(module, "Reply", "The answer to a request, which arrives once.")
      .def("done", &reply::is_done, "Whether it has been answered.")
      .def(
          "result",
          [](reply& one, const py::object& timeout) {
            require_done(one, timeout);
            if (const error* failure = failure_of(one.result())) raise(*failure);
            return completion_of(one);
          },
          py::arg("timeout") = py::none(),
          "Waits without the GIL, spinning for a moment first. Raises troupe.Error, or TimeoutError if there is no "
          "answer within timeout seconds: the request then continues.")
      .def(
          "exception",
          [](reply& one, const py::object& timeout) -> py::object {
            require_done(one, timeout);
            if (const error* failure = failure_of(one.result())) return to_python(*failure);
            return py::none();
          },
          py::arg("timeout") = py::none(), "The error that result() would raise, or None.")
      .def_property_readonly(
          "out", [](const reply& one) { return one.outputs().get(); },
          "The written tensors, as given or allocated: undefined until the reply.")
      .def(
          "_spin",
          [](reply& one, double seconds) {
            if (one.is_done()) return true;
            if (seconds <= 0) return false;
            const time_point until = later(std::chrono::steady_clock::now(), duration_of(py::float_(seconds), {}));
            PyThreadState* const state = PyEval_SaveThread();
            bool done = one.is_done();
            while (!done && std::chrono::steady_clock::now() < until) done = one.is_done();
            PyEval_RestoreThread(state);
            return done;
          },
          "Returns whether it is done, after polling for that long without the GIL.")
      .def("_tell", &reply::tell);

  py::class_<loop_mailbox, std::shared_ptr<loop_mailbox>>(module, "LoopMailbox")
      .def(py::init<>())
      .def("fileno", &loop_mailbox::descriptor)
      .def("take", [](loop_mailbox& box) {
        release_due();
        return box.take();
      });

  py::class_<prepared_request, real_time_ptr<prepared_request>>(
      module, "Request", "Operands and an operation, checked once and sent many times.")
      .def("ask", &prepared_request::ask, "Sends it, with the operands as they were read when it was prepared.")
      .def("__str__", [](const prepared_request& one) {
        return one.parts().empty() ? std::string{"nothing"} : describe(one.parts().front().what);
      });

  module.def(
      "set_result_spin",
      [](double seconds) { result_spin_ns = duration_of(py::float_(seconds), nanoseconds{0}).count(); },
      py::arg("seconds"),
      "How long result() polls for the reply before it sleeps, in seconds; 50 microseconds at first.");
}

} // namespace troupe::python
