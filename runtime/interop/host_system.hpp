/// An actor system that is there already and that a runtime is a guest of: what it is to be made with.
#pragma once

#include <troupe/runtime/configuration/configuration.hpp>

#include <string>
#include <vector>

namespace caf {
class actor_system_config;
}

namespace troupe {

/// Sets in \p host what a runtime with these settings would set in a system of its own, before that system is made:
/// message types (CAF 1.x keeps a table of them), one message per turn, CAF's module io where there is a controller,
/// and how long workers spin. Workers are counted as \p host or else settings.scheduler_threads says; where neither
/// does, CAF makes one for each core, too many to spin. What the host has of its own message types, modules and hooks
/// stays as it is.
/// Units: settings.ranks, where it is 0, counts as one when it is judged whether spinning threads fit the machine.
void prepare_host(caf::actor_system_config& host, const configuration& settings);

/// What of that a system of \p host lacks, each with its price, for people. A runtime logs it as warnings.
[[nodiscard]] std::vector<std::string> host_shortcomings(const caf::actor_system_config& host,
                                                         const configuration& settings);

} // namespace troupe
