/// A configuration together with where each of its values came from. The precedence of the sources is a rule of this
/// file alone: defaults < settings file < environment < program options.
#pragma once

#include <troupe/runtime/configuration/settings.hpp>
#include <troupe/runtime/configuration/variable_lookup.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// In rising precedence.
enum class setting_source : std::uint8_t { standard, file, environment, option };

/// Where a value came from.
struct setting_origin {
  setting_source source = setting_source::standard;
  std::string where{}; ///< The file and line, the variable or the option.
};

/// E.g. "default", "file troupe.json:3", "environment TROUPE_RANKS", "option --ranks".
[[nodiscard]] std::string to_string(const setting_origin& origin);

/// Takes sources one after the other, each beating those before it.
class gathered_settings {
public:
  /// The defaults.
  gathered_settings();

  /// Sets \p which, unless its value came from a source of higher precedence; it is looked at in either case.
  /// Errors: invalid_argument, naming the origin, the text and what it may be.
  void take(const setting& which, std::string_view text, setting_origin from);
  /// Takes all of the settings file at \p path. Errors: invalid_argument with the path and the line.
  void take_file(const std::filesystem::path& path);
  /// Takes the settings' variables and, with find_position(), a launcher's.
  void take_environment(const variable_lookup& variables);

  /// Not yet checked against each other: see check().
  [[nodiscard]] const configuration& settings() const noexcept { return settings_; }
  /// \p which is one of all_settings().
  [[nodiscard]] const setting_origin& origin(const setting& which) const;

private:
  void change(const setting& which, std::string_view text, const std::string& blame, setting_origin from);

  configuration settings_;
  std::vector<setting_origin> origins_; ///< In the table's order.
};

/// What \p variables and a settings file say: the one at \p file, else the one that TROUPE_CONFIG names, if any.
[[nodiscard]] gathered_settings gather_settings(const variable_lookup& variables,
                                                const std::optional<std::filesystem::path>& file = std::nullopt);

} // namespace troupe
