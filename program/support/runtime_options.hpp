/// Adds the options of every subcommand that has a world: one for each setting, and --config. They override the
/// settings file and the environment. Also starts the processes of subcommands that run in one process for each rank.
#pragma once

#include <troupe/runtime/configuration/gathered_settings.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace troupe::launch {
struct job_terms;
class launched_job;
} // namespace troupe::launch

namespace troupe::program {

class runtime_options {
public:
  runtime_options() = default;
  runtime_options(const runtime_options&) = delete; ///< The parser holds references to this object.
  runtime_options& operator=(const runtime_options&) = delete;

  void add_to(CLI::App& command);
  /// Returns the settings, checked, from the defaults, the settings file, the environment and the given options. If the
  /// mock was selected by name and its number of devices was not set, it has as many devices as there are ranks.
  /// Errors: invalid_argument.
  [[nodiscard]] gathered_settings gathered(const variable_lookup& variables) const;
  /// Uses this process's environment, which is also checked for misspelt variables.
  [[nodiscard]] gathered_settings gathered() const;
  [[nodiscard]] configuration settings() const { return gathered().settings(); }
  /// Returns the given options as arguments for another process, except those of the settings \p without.
  [[nodiscard]] std::vector<std::string> arguments(const std::vector<std::string_view>& without) const;

private:
  std::string file_;
  std::vector<std::pair<const setting*, std::string>> given_;
};

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
