/// What `troupe launch` starts: which processes on which hosts, and what each finds in its environment.
#pragma once

#include <troupe/runtime/configuration/variable_lookup.hpp>
#include <troupe/runtime/launch/host_list.hpp>
#include <troupe/runtime/launch/process_spec.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::launch {

/// What is wanted.
struct launch_request {
  std::optional<std::size_t> processes{}; ///< As many as the hosts take, where it is not said.
  std::size_t spares = 0;
  std::vector<launch_host> hosts{}; ///< None: all of them here.
  std::string program;
  std::vector<std::string> arguments{};
  bool prefixed = true;       ///< Lines begin with the process's name.
  std::string control_host{}; ///< Where the controller is reached; empty where there is none.
  std::uint16_t control_port = 0;
  std::uint16_t master_port = 0;       ///< 0: one that is free here now.
  std::vector<std::string> exported{}; ///< Variables of ours that processes on other hosts get besides the usual.
};

/// One process of a job: where it runs and which one it is. It may be started many times.
struct launch_place {
  std::string name;       ///< "0" to "n−1"; spares are "s0", "s1" and so on.
  std::size_t number = 0; ///< Which of the world's first ranks it is, or is a spare for.
  bool spare = false;
  std::size_t host = 0;  ///< Index in launch_plan::hosts.
  std::size_t local = 0; ///< Which of that host's places the number is, from 0.
};

/// Made once; read by any thread.
struct launch_plan {
  std::vector<launch_host> hosts;   ///< Those that are used, each with the number of its places. Spares do not count.
  bool elsewhere = false;           ///< Hosts are reached through a remote shell; else there is one, this.
  std::vector<launch_place> places; ///< First those of the world, in the order of their numbers, then the spares.
  std::size_t processes = 0;        ///< Places of the world.
  std::string token;                ///< TROUPE_JOIN_TOKEN: see make_join_token().
  launch_request request;
  std::string master_host;
  std::uint16_t master_port = 0;
  std::vector<variable_change> shared{};   ///< Of all processes, besides the usual.
  std::vector<variable_change> exported{}; ///< What processes elsewhere get of our environment.

  /// What to start at a place, on its host.
  [[nodiscard]] process_spec spec_of(const launch_place& place) const;
  /// E.g. "process 2 on b" or "spare s0".
  [[nodiscard]] std::string describe(const launch_place& place) const;
  /// E.g. "[2] ", or nothing.
  [[nodiscard]] std::string prefix_of(const launch_place& place) const;
};

/// Fills hosts in their order; a spare stands by on the host of the place that it is for, one for each before a second
/// for any. \p all_variables are those of this process, as "NAME=value", of which TROUPE_*, NCCL_* and the exported go
/// to other hosts. Errors: invalid_argument for numbers that do not fit; missing for a program that is not here, where
/// it is to be started here.
[[nodiscard]] launch_plan make_launch_plan(launch_request request, const std::vector<std::string>& all_variables);

/// This process's variables, as "NAME=value".
[[nodiscard]] std::vector<std::string> own_variables();

} // namespace troupe::launch
