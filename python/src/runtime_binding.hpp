/// Binds the classes Runtime, Controller and Driver of troupe._troupe, and converts keyword arguments to settings.
#pragma once

#include "deferred_release.hpp"
#include "interruptible.hpp"
#include "released_gil.hpp"

#include <troupe/actors/world/world_event.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/processes/world_driver.hpp>
#include <troupe/runtime/configuration/configuration.hpp>

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::python {

/// Holds an object that is destroyed without the GIL, whichever thread drops it: its destructor answers pending
/// requests, and delivering a reply may need the GIL.
template <class Held>
class ended_without_gil {
public:
  /// Constructs the object without the GIL. \p name is used in messages, for example "the runtime".
  template <class Argument>
  ended_without_gil(std::string name, Argument&& given) : name_{std::move(name)} {
    release_due();
    const released_gil released;
    held_ = std::make_shared<Held>(std::forward<Argument>(given));
  }
  ended_without_gil(const ended_without_gil&) = delete;
  ended_without_gil& operator=(const ended_without_gil&) = delete;
  ~ended_without_gil() {
    std::shared_ptr<Held> last = std::move(held_);
    if (!last) return;
    const released_gil released;
    last.reset();
  }

  /// Returns the object. Errors: stopping, once it has been closed.
  [[nodiscard]] Held& get() const {
    if (!held_) throw exception{errc::stopping, name_ + " has been closed: make another"};
    return *held_;
  }
  /// Returns an owner for calls that other threads may close() meanwhile, or null once it has been closed.
  [[nodiscard]] std::shared_ptr<Held> share() const noexcept { return held_; }
  /// Destroys the object. A signal (Ctrl-C) ends the wait; the end of the object continues. The caller must hold the
  /// GIL.
  void close() {
    if (held_) call_interruptibly([last = std::move(held_)]() mutable { last.reset(); });
  }

private:
  std::string name_;
  std::shared_ptr<Held> held_;
};

/// Returns the settings of the file \p file, or of TROUPE_CONFIG's if it is None, of the environment \p variables, or
/// of the process's own if it is None, and the settings \p given. Errors: those of with_settings() and of
/// configuration::load().
[[nodiscard]] configuration gathered_settings_of(const pybind11::dict& given, const pybind11::object& file,
                                                 const pybind11::object& variables);

/// Returns \p start with the settings \p given. Names are those of the settings file; a dot may be written as an
/// underscore ("mock_devices"). Values are strings as in the file, numbers, and for durations seconds or a timedelta.
/// None changes nothing. Errors: invalid_argument, whose text names the setting, the value and the valid values.
[[nodiscard]] configuration with_settings(configuration start, const pybind11::dict& given);

/// Returns the ranks \p all as ints.
[[nodiscard]] std::vector<int> numbers_of(const std::vector<rank>& all);

/// Returns a world_event as keyword arguments of troupe.WorldEvent.
[[nodiscard]] pybind11::dict shown_event(const world_event& one);

void bind_runtimes(pybind11::module_& module);
void bind_controllers(pybind11::module_& module);
void bind_drivers(pybind11::module_& module);
/// Binds the test kit.
void bind_testing(pybind11::module_& module);

} // namespace troupe::python
