/// Combines settings from all sources into a configuration, records the source of each value, and reads and writes
/// settings files. This file alone defines the precedence of the sources: defaults < settings file < environment <
/// program options.
#pragma once

#include <troupe/runtime/configuration/launch_environment.hpp>
#include <troupe/runtime/configuration/settings.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// The sources of settings, in rising precedence.
enum class setting_source : std::uint8_t { standard, file, environment, option };

/// The source of a value.
struct setting_origin {
  setting_source source = setting_source::standard;
  std::string where{}; ///< The file and line, the variable, or the option.
};

/// Returns, for example, "default", "file troupe.json:3", "environment TROUPE_RANKS", "option --ranks".
[[nodiscard]] std::string to_string(const setting_origin& origin);

/// Combines the sources of settings. Each source overrides those of lower precedence.
class gathered_settings {
public:
  /// Creates a configuration of defaults.
  gathered_settings();

  /// Sets \p which, unless its value came from a source of higher precedence. \p text is validated in either case.
  /// Errors: invalid_argument, naming the origin, the text and the valid values.
  void take(const setting& which, std::string_view text, setting_origin from);
  /// Takes all settings of the file at \p path. Errors: invalid_argument with the path and the line.
  void take_file(const std::filesystem::path& path);
  /// Takes the settings' environment variables, and the launcher's variables (find_position()).
  void take_environment(const variable_lookup& variables);

  /// Returns the settings. They have not been checked against each other: see check().
  [[nodiscard]] const configuration& settings() const noexcept { return settings_; }
  /// Returns the source of the value of \p which, an element of all_settings().
  [[nodiscard]] const setting_origin& origin(const setting& which) const;

private:
  void change(const setting& which, std::string_view text, setting_origin from);

  configuration settings_;
  std::vector<setting_origin> origins_; ///< The origin of each setting, in the order of all_settings().
};

/// Combines the defaults, a settings file and \p variables. The file is \p file, else the one that TROUPE_CONFIG names,
/// if any.
[[nodiscard]] gathered_settings gather_settings(const variable_lookup& variables,
                                                const std::optional<std::filesystem::path>& file = std::nullopt);

/// Returns limits.lead and limits.straggling for a controller, which decides the order for all processes, from the same
/// file and variables. Takes no variables of a launcher, because a controller has no rank.
[[nodiscard]] sequencer_limits find_order_limits(const variable_lookup& variables);
/// Returns log_level for a controller in the same way.
[[nodiscard]] std::string find_log_level(const variable_lookup& variables);

/// One entry of a settings file. Neither the name nor the value has been validated.
struct settings_file_entry {
  std::string name;
  std::string value;
  std::size_t line; ///< Line number, counted from 1.
};

/// Reads the entries of the file at \p path: one JSON object with the full name of each setting as key, so that a name
/// has the same spelling everywhere. Comments are allowed. Numbers are bare, everything else is quoted:
///
///     { "backend": "mock", "mock.devices": 2, "deadlines.form": "10s" } // without a GPU
///
/// Errors: invalid_argument with the path and the line, if the file cannot be read, is not a regular file of at most
/// 1 MiB, is not JSON, has values other than numbers and strings, or names a setting twice.
[[nodiscard]] std::vector<settings_file_entry> read_settings_file(const std::filesystem::path& path);
/// Parses \p text as read_settings_file() does. Errors name \p path as its origin.
[[nodiscard]] std::vector<settings_file_entry> parse_settings_file(const std::filesystem::path& path,
                                                                   const std::string& text);

/// Returns a settings file with all of \p settings. Errors: invalid_argument for a path that is not UTF-8, as JSON
/// requires.
[[nodiscard]] std::string format_settings_file(const configuration& settings);

} // namespace troupe
