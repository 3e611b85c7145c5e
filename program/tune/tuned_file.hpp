/// The settings file that `troupe tune` writes: JSON with comments that say what was measured.
#pragma once

#include <string>
#include <vector>

namespace troupe::program {

struct tuned_setting {
  std::string name;                    ///< One of all_settings().
  std::string value;                   ///< As it is written on a command line.
  std::vector<std::string> comments{}; ///< What was measured, a line each.
};

/// A settings file (docs/configuration.md) with \p chosen, and \p heading as comments at its top. What is in comments
/// cannot end them. Errors: invalid_argument for a name that is no setting's.
[[nodiscard]] std::string tuned_file(const std::vector<std::string>& heading, const std::vector<tuned_setting>& chosen);

} // namespace troupe::program
