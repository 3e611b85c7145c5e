/// The hosts that processes are started on, as people write them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::launch {

struct launch_host {
  std::string name;
  std::size_t processes = 1; ///< How many it takes at most, from 1.

  friend bool operator==(const launch_host&, const launch_host&) = default;
};

/// "a:4,b:4"; without a number it is one process. A name with colons, an IPv6 address, stands in brackets:
/// "[fe80::1]:4". Errors: invalid_argument for what is no host, no number from 1, a host that is there twice, or none
/// at all.
[[nodiscard]] std::vector<launch_host> parse_hosts(std::string_view text);

/// The same from a file, one host in a line; "a slots=4", as Open MPI has it, means a:4. What follows a # is left out.
/// Errors: as parse_hosts(), with file and line; missing for a file that cannot be read.
[[nodiscard]] std::vector<launch_host> read_hosts_file(const std::filesystem::path& path);

} // namespace troupe::launch
