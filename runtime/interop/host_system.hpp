/// Prepares an existing actor system of a program, so that a runtime can use it.
#pragma once

#include <troupe/runtime/configuration/configuration.hpp>

#include <string>
#include <vector>

namespace caf {
class actor_system_config;
}

namespace troupe {

/// Applies to \p host the settings that a runtime with \p settings uses for its own actor system. Call it before the
/// system is created. It sets the message types (CAF 1.x keeps a table of them), one message per turn, and how long
/// workers spin. The number of workers comes from \p host, else it is that of a runtime's own system: set it in \p host
/// if your actors need more. The host's own message types, modules and hooks do not change. To decide whether spinning
/// threads fit the machine, settings.ranks of 0 counts as 1.
void prepare_host(caf::actor_system_config& host, const configuration& settings);

/// Returns one human-readable line, with the consequence, for each of these settings that \p host lacks: none after
/// prepare_host(), unless \p host has more workers than can spin. A runtime logs the lines as warnings.
[[nodiscard]] std::vector<std::string> host_shortcomings(const caf::actor_system_config& host,
                                                         const configuration& settings);

} // namespace troupe
