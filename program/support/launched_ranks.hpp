/// Starts the processes of subcommands that run in one process for each rank.
#pragma once

#include <troupe/program/support/runtime_options.hpp>

#include <troupe/actors/world/recovery/recovery_terms.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/control/controller_terms.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe::launch {
struct job_terms;
struct launch_plan;
class launched_job;
} // namespace troupe::launch

namespace troupe::program {

/// Returns how many processes of one rank each a subcommand starts: settings.ranks; if that is 0, one for each GPU, or
/// four where ranks need none. Errors: those of select_backend().
[[nodiscard]] std::size_t process_count(const configuration& settings);

/// Makes \p terms those of a job that goes on after the loss of a process, as often as it is lost.
void survive_losses(launch::job_terms& terms, recovery_policy policy, nanoseconds suspicion);

/// Plans process_count() processes, which run this program with \p arguments and with the settings that \p options were
/// given.
[[nodiscard]] launch::launch_plan plan_of_ranks(const runtime_options& options, std::vector<std::string> arguments);

/// Makes the job of process_count() processes, which run this program with \p arguments and with the settings that
/// \p options were given. If \p ends_with_a_loss, the loss of a process ends the job; else \p terms decide
/// (survive_losses()).
[[nodiscard]] launch::launched_job launch_ranks(const runtime_options& options, std::vector<std::string> arguments,
                                                launch::job_terms terms, bool ends_with_a_loss = true);

/// Returns \p settings for a process without a rank, which drives the world of \p job.
[[nodiscard]] configuration settings_of_driver(launch::launched_job& job, configuration settings);

/// The events of a controller with their times. Threads: any.
class control_history {
public:
  struct entry {
    std::int64_t at_ns; ///< By the monotonic clock, which all processes of a host share.
    control_event event;
  };
  void add(const control_event& event);
  /// Returns those from number \p from on, counted from 0.
  [[nodiscard]] std::vector<entry> since(std::size_t from) const;
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] std::optional<control_event> latest() const;

private:
  mutable std::mutex mutex_;
  std::vector<entry> all_;
};

} // namespace troupe::program
