/// Options that every subcommand with a world has: one for each setting, and --config. They change what the settings
/// file and the environment have set.
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
  runtime_options(const runtime_options&) = delete; ///< A command line is parsed into this object.
  runtime_options& operator=(const runtime_options&) = delete;

  void add_to(CLI::App& command);
  /// The defaults, the settings file, the environment and the options given; with a mock that was asked for by name and
  /// no word on its devices, as many of these as there are ranks. Checked. Errors: invalid_argument.
  [[nodiscard]] gathered_settings gathered(const variable_lookup& variables) const;
  /// Of this process's variables, which are looked through for misspelt ones.
  [[nodiscard]] gathered_settings gathered() const;
  [[nodiscard]] configuration settings() const { return gathered().settings(); }
  /// The options given, for another process that is to be told the same, but for those of the settings \p without.
  [[nodiscard]] std::vector<std::string> arguments(const std::vector<std::string_view>& without) const;

private:
  std::string file_;
  std::vector<std::pair<const setting*, std::string>> given_;
};

} // namespace troupe::program
