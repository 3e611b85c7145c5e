/// The classes Runtime and Controller of troupe._troupe, and settings as keyword arguments.
#pragma once

#include <troupe/actors/world/world_event.hpp>
#include <troupe/device/error.hpp>
#include <troupe/runtime/configuration/configuration.hpp>

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <utility>

namespace troupe::python {

/// Holds an object that is destroyed without the GIL, whichever thread drops it: its destructor answers pending
/// requests, and delivering a reply may need the GIL.
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

/// \p start, changed by \p given: names as in the settings file, where a dot may be an underscore ("mock_devices").
/// Values: strings as there; numbers; for durations seconds or a timedelta; None leaves it as it is.
/// Errors: invalid_argument, naming the setting, what it was and what it may be.
[[nodiscard]] configuration with_settings(configuration start, const pybind11::dict& given);

/// A world_event as keyword arguments of troupe.WorldEvent.
[[nodiscard]] pybind11::dict shown_event(const world_event& one);

void bind_runtimes(pybind11::module_& module);
void bind_controllers(pybind11::module_& module);

} // namespace troupe::python
