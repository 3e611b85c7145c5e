/// What ends without the GIL, whoever drops it: its end answers what is pending, and answers may want the GIL.
#pragma once

#include <troupe/device/error.hpp>

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <utility>

namespace troupe::python {

template <class Held>
class ended_without_gil {
public:
  /// \p name for people: "the runtime".
  ended_without_gil(std::string name, std::unique_ptr<Held> held) : name_{std::move(name)}, held_{std::move(held)} {}
  ended_without_gil(const ended_without_gil&) = delete;
  ended_without_gil& operator=(const ended_without_gil&) = delete;
  ~ended_without_gil() { close(); }

  /// Errors: stopping, once it has been closed.
  [[nodiscard]] Held& get() const {
    if (!held_) throw exception{errc::stopping, name_ + " has been closed: make another"};
    return *held_;
  }
  void close() noexcept {
    if (!held_) return;
    PyThreadState* const state = PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr;
    held_.reset();
    if (state != nullptr) PyEval_RestoreThread(state);
  }

private:
  std::string name_;
  std::unique_ptr<Held> held_;
};

} // namespace troupe::python
