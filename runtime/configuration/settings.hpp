/// Provides the single list of all settings. A new setting is a member of `configuration` and one statement in
/// settings.cpp, which gives its name, description, form, range and member. The settings file, the environment, the
/// program's options, `troupe config` and Python's keywords are derived from the list, and a test requires a line in
/// docs/configuration.md.
#pragma once

#include <troupe/runtime/configuration/configuration.hpp>

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// One setting: its name in each source, and its form.
struct setting {
  std::string_view name;        ///< The name in a settings file, for example "deadlines.form".
  std::string_view group;       ///< The heading under which --help lists it.
  std::string_view description; ///< Text of half a line, with the choices or the meaning of 0.
  std::string_view form;        ///< The form of the value: NAME, NUMBER (not quoted in a file), SIZE, DURATION or PATH.
  std::string variable{};       ///< The environment variable, for example "TROUPE_DEADLINES_FORM".
  std::string option{};         ///< The program option, for example "--deadlines-form".
  std::string member{};         ///< The member of a configuration, for example "deadlines.form".
  /// The range of a number, for example "1 to 256", or "1ms to 60s, or 0". Empty: not a number.
  std::string range{};
  /// Sets the value. Errors: invalid_argument with the text and the valid values.
  std::function<void(configuration& settings, std::string_view text)> set{};
  /// Returns the value in the form that set() reads back.
  std::function<std::string(const configuration& settings)> text{};
};

/// Returns all settings, in the order in which they are shown. Lifetime: static. Threads: any.
[[nodiscard]] std::span<const setting> all_settings();

/// Returns the setting called \p name. Errors: invalid_argument, naming the nearest setting.
[[nodiscard]] const setting& find_setting(std::string_view name);

/// Refuses a variable in \p names that is nearly the name of a variable that troupe reads: one edit away, or two in a
/// long name. All \p names begin with TROUPE_. Other variables may be the user's own. Errors: invalid_argument, naming
/// the nearest variable.
void check_variable_names(const std::vector<std::string>& names);
/// Checks the variables in this process's environment in the same way. Threads: any, as long as none changes the
/// environment meanwhile.
void check_process_variables();

/// Runs \p action, and puts \p origin in front of the text of an exception that it throws.
void with_origin(std::string_view origin, const std::function<void()>& action);

} // namespace troupe
