/// Starts the processes of subcommands that run in one process for each rank.
#pragma once

#include <troupe/program/support/runtime_options.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::launch {
struct job_terms;
class launched_job;
} // namespace troupe::launch

namespace troupe::program {

/// Returns how many processes of one rank each a subcommand starts: settings.ranks; if that is 0, one for each GPU, or
/// four where ranks need none. Errors: those of select_backend().
[[nodiscard]] std::size_t process_count(const configuration& settings);

/// Makes the job of process_count() processes, which run this program with \p arguments and with the settings that
/// \p options were given. The loss of a process ends the job.
[[nodiscard]] launch::launched_job launch_ranks(const runtime_options& options, std::vector<std::string> arguments,
                                                launch::job_terms terms);

/// Returns \p settings for a process without a rank, which drives the world of \p job.
[[nodiscard]] configuration settings_of_driver(launch::launched_job& job, configuration settings);

} // namespace troupe::program
