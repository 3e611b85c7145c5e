/// The settings file that `troupe tune` writes: JSON with comments that say what was measured.
#pragma once

#include <string>
#include <vector>

namespace troupe::program {

struct tuned_setting {
  std::string name;                    ///< One of all_settings().
  std::string value;                   ///< As on a command line.
  std::vector<std::string> comments{}; ///< What was measured, one line each.
};

/// Returns a settings file (docs/configuration.md) with \p chosen settings, and \p heading as comments at the top. Text
/// in comments cannot end them. Errors: invalid_argument for a name that is not a setting.
[[nodiscard]] std::string tuned_file(const std::vector<std::string>& heading, const std::vector<tuned_setting>& chosen);

} // namespace troupe::program
