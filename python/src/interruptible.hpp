/// Makes calls that wait, so that Ctrl-C ends the wait.
#pragma once

#include "released_gil.hpp"

#include <troupe/device/time.hpp>

#include <pybind11/pybind11.h>

#include <chrono>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

namespace troupe::python {

/// Calls \p is_done without the GIL until it returns true, and looks for signals (Ctrl-C) between the calls. \p is_done
/// waits at most as long as its argument says. Throws the exception that a signal's handler raises. The caller must
/// hold the GIL.
template <class IsDone>
void wait_interruptibly(IsDone is_done) {
  constexpr std::chrono::milliseconds between_looks{100};
  for (;;) {
    {
      const released_gil released;
      if (is_done(between_looks)) return;
    }
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set{};
  }
}

/// Returns the result of \p call. If a signal's handler raises an exception, throws it; the call continues, and its
/// result is dropped.
template <class Result>
[[nodiscard]] Result await_interruptibly(std::future<Result> call) {
  wait_interruptibly([&](nanoseconds at_most) { return call.wait_for(at_most) == std::future_status::ready; });
  return call.get();
}

/// Calls \p what on a thread of its own and awaits it as above. \p what owns everything that it uses, because it may
/// outlive this call, and uses no object of Python.
template <class What>
auto call_interruptibly(What what) {
  const auto task = std::make_shared<std::packaged_task<std::invoke_result_t<What&>()>>(std::move(what));
  auto result = task->get_future();
  try {
    std::thread{[task] { (*task)(); }}.detach();
  } catch (const std::system_error&) { // no thread can be started: Ctrl-C takes effect when the call has returned
    const released_gil released;
    (*task)();
  }
  return await_interruptibly(std::move(result));
}

/// Returns the result of \p call. If a signal's handler raises an exception, passes the call to \p abandon, without the
/// GIL, and throws the exception. \p abandon ends the call and must not throw.
template <class Result, class Abandon>
[[nodiscard]] Result await_or_abandon(std::future<Result> call, Abandon abandon) {
  try {
    wait_interruptibly([&](nanoseconds at_most) { return call.wait_for(at_most) == std::future_status::ready; });
  } catch (const pybind11::error_already_set&) {
    {
      const released_gil released;
      abandon(std::move(call));
    }
    throw;
  }
  return call.get();
}

} // namespace troupe::python
