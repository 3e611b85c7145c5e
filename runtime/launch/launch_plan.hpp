/// The plan of `troupe launch`: which processes run on which hosts, and their environment variables.
#pragma once

#include <troupe/runtime/configuration/launch_environment.hpp>
#include <troupe/runtime/launch/host_list.hpp>
#include <troupe/runtime/launch/process_spec.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::launch {

/// The options of a launch.
struct launch_request {
  std::optional<std::size_t> processes{}; ///< Empty: as many as the hosts allow.
  std::size_t spares = 0;
  std::vector<launch_host> hosts{}; ///< Empty: all processes run on this host.
  std::string program;
  std::vector<std::string> arguments{};
  bool prefixed = true;       ///< Whether output lines begin with the process's name.
  std::string control_host{}; ///< The host at which the controller is reached. Empty: no controller.
  std::uint16_t control_port = 0;
  std::uint16_t master_port = 0; ///< 0: a port that is free on this host now.
  /// Variables of this process that processes on other hosts get in addition to the default ones.
  std::vector<std::string> exported{};
};

/// One process of a job: its host and its index. It may be started many times.
struct launch_place {
  std::string name;       ///< "0" to "n−1"; spares are "s0", "s1" and so on.
  std::size_t number = 0; ///< The first rank that it has, or for which it is a spare.
  bool spare = false;
  std::size_t host = 0;  ///< Index in launch_plan::hosts.
  std::size_t local = 0; ///< The index of the number among the places of that host, from 0.
};

/// The complete plan. Threads: any may read it once it is made.
struct launch_plan {
  std::vector<launch_host> hosts;   ///< The hosts in use, each with the number of its places. Spares do not count.
  bool elsewhere = false;           ///< Hosts are reached by a remote shell. Otherwise there is one host, this one.
  std::vector<launch_place> places; ///< First those of the world, in the order of their numbers, then the spares.
  std::size_t processes = 0;        ///< The number of places of the world.
  std::string token;                ///< TROUPE_JOIN_TOKEN: see make_join_token().
  launch_request request;
  std::string master_host;
  std::uint16_t master_port = 0;
  std::vector<variable_change> shared{};   ///< Variables of all processes, in addition to the default ones.
  std::vector<variable_change> exported{}; ///< Variables of our environment for processes on other hosts.

  /// Returns how to start the process of \p place on its host.
  [[nodiscard]] process_spec spec_of(const launch_place& place) const;
  /// Describes a place, for example "process 2 on b" or "spare s0".
  [[nodiscard]] std::string describe(const launch_place& place) const;
  /// Returns the prefix of its output lines, for example "[2] ", or an empty text.
  [[nodiscard]] std::string prefix_of(const launch_place& place) const;
};

/// Assigns processes to hosts, filling them in order. A spare runs on the host of its place; every place gets one spare
/// before any gets a second. \p all_variables are those of this process, as "NAME=value"; TROUPE_*, NCCL_* and the
/// exported ones are passed to other hosts. Errors: invalid_argument for numbers that do not fit; missing if the
/// program is not on this host but is to be started here.
[[nodiscard]] launch_plan make_launch_plan(launch_request request, const std::vector<std::string>& all_variables);

/// Returns this process's variables, as "NAME=value".
[[nodiscard]] std::vector<std::string> own_variables();

} // namespace troupe::launch
