/// How a process finds the controller of a world that spans processes, and in which role it was started.
#pragma once

#include <troupe/actors/world/recovery_terms.hpp>
#include <troupe/runtime/configuration/launch_environment.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// How a process joins a world, and what it does if it loses its controller.
struct control_settings {
  std::string address{}; ///< HOST:PORT of the controller. Empty: the process forms worlds without one.
  orphan_policy orphaned = orphan_policy::leave;
  nanoseconds patience{std::chrono::seconds{30}}; ///< How long the process goes on without a controller.
  // For mutual TLS, which is required beyond loopback. Set all three or none.
  std::filesystem::path ca{};
  std::filesystem::path certificate{};
  std::filesystem::path key{};

  [[nodiscard]] bool has_certificates() const { return !ca.empty() || !certificate.empty() || !key.empty(); }
};

/// The data that the launcher passed to this process. Never log it as a whole: it contains the join token (SEC-1).
struct control_seat {
  std::string token{};
  std::string name{};          ///< Name of the process, for people. Empty: made of host name and process id.
  std::string host{};          ///< Name of its host. Empty: the host's own name.
  std::optional<int> place{};  ///< The rank that the process is to have.
  std::optional<int> device{}; ///< The index of its device among those that the process sees.
  bool spare = false;
  int attempt = 0;       ///< The number of processes that were started for this place before.
  std::string meeting{}; ///< The rendezvous address of the processes of another launcher: see find_meeting_place().
  /// The launcher starts a replacement when this process ends, so the process may exit when it is removed from the
  /// world.
  bool is_watched = false;
};

/// Reads TROUPE_JOIN_TOKEN, TROUPE_PROCESS, TROUPE_HOST, TROUPE_PLACE, TROUPE_DEVICE, TROUPE_SPARE and TROUPE_ATTEMPT,
/// which `troupe launch` sets, and the rendezvous address of other launchers. Errors: invalid_argument, naming the
/// variable.
[[nodiscard]] control_seat find_control_seat(const variable_lookup& variables);

/// Returns the rendezvous address of a launcher's processes: MASTER_ADDR, and the port after MASTER_PORT. Empty if they
/// are not set.
[[nodiscard]] std::string find_meeting_place(const variable_lookup& variables);

/// The parts of HOST:PORT.
struct control_address {
  std::string host;
  std::uint16_t port = 0;
  [[nodiscard]] bool is_loopback() const;
};
/// Errors: invalid_argument, describing the expected form.
[[nodiscard]] control_address parse_control_address(std::string_view text);
[[nodiscard]] std::string to_string(const control_address& where);

} // namespace troupe
