/// How a process finds the controller of a world that spans processes, and what it was started as there.
#pragma once

#include <troupe/actors/control/process_link.hpp>
#include <troupe/runtime/configuration/launch_environment.hpp>
#include <troupe/runtime/configuration/variable_lookup.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// How a process joins a world, and what it does without its controller.
struct control_settings {
  std::string address{}; ///< HOST:PORT of the controller; empty: the process forms worlds without one.
  orphan_policy orphaned = orphan_policy::leave;
  nanoseconds patience{std::chrono::seconds{30}}; ///< Without a controller.
  // Of mutual TLS, which is needed beyond loopback; all three or none.
  std::filesystem::path ca{};
  std::filesystem::path certificate{};
  std::filesystem::path key{};

  [[nodiscard]] bool has_certificates() const { return !ca.empty() || !certificate.empty() || !key.empty(); }
};

/// What whoever started the process has told it. Never logged as a whole: it has the token (SEC-1).
struct control_seat {
  std::string token{};
  std::string name{};          ///< Of the process, for people; empty: made of host and process id.
  std::string host{};          ///< What its host is called; empty: as that calls itself.
  std::optional<int> place{};  ///< The rank it is to be.
  std::optional<int> device{}; ///< Of those that the process sees.
  bool spare = false;
  int attempt = 0;         ///< Processes that were started for this place before.
  std::string meeting{};   ///< Where the processes of another launcher meet: find_meeting_place().
  bool is_watched = false; ///< Whoever started it starts another when it ends: it may end the process when it is out.
};

/// That of TROUPE_JOIN_TOKEN, TROUPE_PROCESS, TROUPE_HOST, TROUPE_PLACE, TROUPE_DEVICE, TROUPE_SPARE and
/// TROUPE_ATTEMPT, which `troupe launch` sets, and the meeting place of other launchers'. Errors: invalid_argument,
/// naming the variable.
[[nodiscard]] control_seat find_control_seat(const variable_lookup& variables);

/// Where a launcher's own processes meet (MASTER_ADDR, MASTER_PORT), one port further; empty where it does not say.
[[nodiscard]] std::string find_meeting_place(const variable_lookup& variables);

/// HOST:PORT, taken apart.
struct control_address {
  std::string host;
  std::uint16_t port = 0;
  [[nodiscard]] bool is_loopback() const;
};
/// Errors: invalid_argument, saying what it must look like.
[[nodiscard]] control_address parse_control_address(std::string_view text);
[[nodiscard]] std::string to_string(const control_address& where);

} // namespace troupe
