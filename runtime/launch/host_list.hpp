/// Parses the hosts on which processes are started.
#pragma once

#include <cstddef>
#include <filesystem>
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

} // namespace troupe::launch
