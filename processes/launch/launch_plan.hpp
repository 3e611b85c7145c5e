/// Plans a job of several processes of this host: which processes run, with which environment.
#pragma once

#include <troupe/processes/launch/child_process.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::launch {

/// The options of a launch.
struct launch_request {
  std::size_t processes = 1;
  std::size_t spares = 0;
  std::string program;
  std::vector<std::string> arguments{};
  bool prefixed = true;                       ///< Whether output lines begin with the process's name.
  std::uint16_t master_port = 0;              ///< MASTER_PORT of all processes. 0: any free port.
  std::vector<variable_change> environment{}; ///< Variables of all processes, in addition to those of docs/launch.md.
};

/// One process of a job. It may be started many times.
struct launch_place {
  std::string name;       ///< "0" to "n−1"; spares are "s0", "s1" and so on.
  std::size_t number = 0; ///< The rank that it has at first, or for which it is a spare.
  bool spare = false;

  /// Describes it for users, for example "process 2" or "spare s0".
  [[nodiscard]] std::string describe() const { return (spare ? "spare " : "process ") + name; }
};

/// Index in launch_plan::places.
using place_index = std::size_t;

/// The complete plan. Threads: any may read it once it is made.
struct launch_plan {
  launch_request request;
  std::vector<launch_place> places; ///< First the places of the world, in the order of their numbers, then spares.
  std::string token;                ///< TROUPE_JOIN_TOKEN: see make_join_token().
  std::uint16_t master_port = 0;
  std::string control{}; ///< HOST:PORT of the controller. Empty: there is none.

  /// Returns the description from which the process of \p place is started.
  [[nodiscard]] process_spec spec_of(const launch_place& place) const;
};

/// Returns a TCP port that is free now. Another process may take the port before it is used. Errors: unsupported.
[[nodiscard]] std::uint16_t free_port();

/// Creates the plan of a job. Spares are assigned to the places round robin. Errors: missing if there is no such
/// program.
[[nodiscard]] launch_plan make_launch_plan(launch_request request);

} // namespace troupe::launch
