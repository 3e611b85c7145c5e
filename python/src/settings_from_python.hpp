/// Settings as keyword arguments.
#pragma once

#include <troupe/actors/world/world_event.hpp>
#include <troupe/runtime/configuration/configuration.hpp>

#include <pybind11/pybind11.h>

namespace troupe::python {

/// \p start, changed by \p given: names as in the settings file, where a dot may be an underscore ("mock_devices").
/// Values: strings as there; numbers; for durations seconds or a timedelta; None leaves it as it is.
/// Errors: invalid_argument, naming the setting, what it was and what it may be.
[[nodiscard]] configuration with_settings(configuration start, const pybind11::dict& given);

/// A world_event as keyword arguments of troupe.WorldEvent.
[[nodiscard]] pybind11::dict shown_event(const world_event& one);

} // namespace troupe::python
