/// What the actors that speak across processes are told within their own.
#pragma once

#include <troupe/actors/control/control_messages.hpp>
#include <troupe/device/error.hpp>

#include <caf/actor.hpp>

#include <cstdint>
#include <string>
#include <variant>

namespace troupe {

/// Look at the clock.
struct time_passes {};
/// Whoever started the process called `name` has seen it end.
struct process_end {
  std::string name;
  std::int64_t pid = 0;
  std::string how;
};
/// Let all finish what they do, and end.
struct stop_control {};

/// Its owner goes: end now. CAF's exit messages are not heeded, since other systems can send them.
struct quit_control {};

/// To a controller.
struct controller_note {
  std::variant<time_passes, process_end, stop_control, quit_control> what;
};

/// A connection to the controller is there.
struct controller_found {
  caf::actor it;
};
/// It has ended.
struct controller_lost {
  error why;
};

/// To a process's actor.
struct process_note {
  std::variant<time_passes, controller_found, controller_lost, stop_control> what;
};

} // namespace troupe
