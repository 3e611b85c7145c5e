/// Adds the options of every subcommand that has a world: one for each setting, and --config. They override the
/// settings file and the environment.
#pragma once

#include <troupe/runtime/configuration/gathered_settings.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

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

} // namespace troupe::program
