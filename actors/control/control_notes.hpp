/// Defines the messages that the actors of the control connection receive from within their own process.
#pragma once

#include <troupe/actors/control/control_messages.hpp>
#include <troupe/device/error.hpp>

#include <caf/actor.hpp>

#include <cstdint>
#include <string>
#include <variant>

namespace troupe {

/// Timer tick: check the deadlines.
struct time_passes {};
/// The process called `name` has ended, as observed by the program that started it.
struct process_end {
  std::string name;
  std::int64_t pid = 0;
  std::string how;
};
/// Let all processes finish their work, then end.
struct stop_control {};

/// Ends the controller's actor at once, because its owner is being destroyed. CAF's exit messages are ignored, because
/// other systems can send them.
struct quit_control {};

/// A message to a controller.
struct controller_note {
  std::variant<time_passes, process_end, stop_control, quit_control> what;
};

/// The search has connected to the controller.
struct controller_found {
  caf::actor it;
};
/// The connection to the controller failed or was not made.
struct controller_lost {
  error why;
};

/// A message to a process's actor.
struct process_note {
  std::variant<time_passes, controller_found, controller_lost, stop_control> what;
};

} // namespace troupe
