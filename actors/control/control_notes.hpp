/// Defines the messages that the actors of the control connection receive from within their own process.
#pragma once

#include <troupe/actors/control/control_messages.hpp>
#include <troupe/collectives/transport/transport.hpp>
#include <troupe/device/error.hpp>

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

/// Ends the controller's actor at once, because its owner is being destroyed.
struct quit_control {};

/// A process has sent a frame.
struct peer_message {
  peer_id from{};
  std::string bytes;
};
/// The connection of a process has ended.
struct peer_lost {
  peer_id which{};
};

/// The order service has found losses or late peers.
struct order_news {};

/// A message to a controller.
struct controller_note {
  std::variant<time_passes, peer_message, peer_lost, process_end, stop_control, quit_control, order_news> what;
};

/// The controller has admitted this process's connection. \p attempt numbers the connections of a process.
struct controller_found {
  std::uint64_t attempt = 0;
};
/// The controller has sent a frame.
struct controller_said {
  std::uint64_t attempt = 0;
  std::string bytes;
};
/// The connection to the controller failed or was not made.
struct controller_lost {
  std::uint64_t attempt = 0;
  transport_fault why;
};

/// A message to a process's actor.
struct process_note {
  std::variant<time_passes, controller_found, controller_said, controller_lost, stop_control> what;
};

} // namespace troupe
