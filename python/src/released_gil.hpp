/// Calls that wait do so without the interpreter's lock.
#pragma once

#include <pybind11/pybind11.h>

namespace troupe::python {

/// Called by the thread that ends the interpreter, before it does.
void interpreter_ends_here() noexcept;

/// Keeps the calling thread until the process exits, if another thread ends the interpreter.
void stay_if_interpreter_ends() noexcept;

/// Releases the GIL while it lives, if the thread has it. In place of gil_scoped_release: the interpreter's end terminates
/// threads that take the GIL again, by an exception that must not leave a destructor.
class released_gil {
public:
  released_gil() : state_{PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr} {}
  released_gil(const released_gil&) = delete;
  released_gil& operator=(const released_gil&) = delete;
  ~released_gil() noexcept(false) { // NOLINT(performance-noexcept-destructor): the end may begin between the two calls
    if (state_ == nullptr) return;
    stay_if_interpreter_ends();
    PyEval_RestoreThread(state_);
  }

private:
  PyThreadState* state_;
};

} // namespace troupe::python
