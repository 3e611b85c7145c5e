/// Plans a job: which hosts it uses, and which processes run there with which environment.
#pragma once

#include <troupe/runtime/configuration/launch_environment.hpp>
#include <troupe/runtime/launch/child_process.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::launch {

struct launch_host {
  std::string name;
  std::size_t processes = 1; ///< The most processes that it may run, from 1.

  friend bool operator==(const launch_host&, const launch_host&) = default;
};

/// Parses "a:4,b:4". A host without a number runs one process. A name with colons, an IPv6 address, is in brackets:
/// "[fe80::1]:4". Errors: invalid_argument for an invalid host, a number below 1, a host that appears twice, or an
/// empty list.
[[nodiscard]] std::vector<launch_host> parse_hosts(std::string_view text);

/// Reads hosts from a file, one per line. "a slots=4", the form of Open MPI, means a:4. A # begins a comment. Errors:
/// as parse_hosts(), with file and line; missing if the file cannot be read.
[[nodiscard]] std::vector<launch_host> read_hosts_file(const std::filesystem::path& path);

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
  std::uint16_t master_port = 0; ///< MASTER_PORT of all processes. 0: a port that is free on this host.
  /// Variables of this process that processes on other hosts get in addition to the default ones.
  std::vector<std::string> exported{};
};

/// One process of a job: its host and its index. It may be started many times.
struct launch_place {
  std::string name;       ///< "0" to "n−1"; spares are "s0", "s1" and so on.
  std::size_t number = 0; ///< The rank that it has at first, or for which it is a spare.
  bool spare = false;
  std::size_t host = 0;  ///< Index in launch_plan::hosts.
  std::size_t local = 0; ///< The index among the host's places, from 0. A spare has that of its place.
};

/// The complete plan. Threads: any may read it once it is made.
struct launch_plan {
  std::vector<launch_host> hosts;   ///< The hosts in use, each with the number of its places. Spares do not count.
  bool elsewhere = false;           ///< Whether hosts are reached by a remote shell. Otherwise all run on this host.
  std::vector<launch_place> places; ///< First the places of the world, in the order of their numbers, then spares.
  std::size_t processes = 0;        ///< The number of places of the world.
  std::string token;                ///< TROUPE_JOIN_TOKEN: see make_join_token().
  launch_request request;
  std::string master_host;
  std::uint16_t master_port = 0;
  std::vector<variable_change> shared{};   ///< Variables of all processes, in addition to the default ones.
  std::vector<variable_change> exported{}; ///< This process's variables that are passed to other hosts.

  /// Returns the description from which the process of \p place is started on its host.
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
