/// The one list of what can be set. A new setting is a member of `configuration` and a line of the table in
/// settings.cpp; the settings file, the environment, the program's options and `troupe config` follow, and a test asks
/// for its line in docs/configuration.md.
#pragma once

#include <troupe/runtime/configuration/configuration.hpp>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// One setting: what it is called in each place, and how it is written.
struct setting {
  std::string_view name;        ///< In a settings file, e.g. "deadlines.form".
  std::string variable;         ///< In the environment, e.g. "TROUPE_DEADLINES_FORM".
  std::string option;           ///< On a command line, e.g. "--deadlines-form".
  std::string_view group;       ///< The heading under which --help lists it.
  std::string_view description; ///< Half a line; with the choices or the meaning of 0.
  std::string_view form;        ///< What is written: NAME, NUMBER (bare in a file), SIZE, DURATION or PATH.
  std::string range;            ///< Of a number, e.g. "1 to 256", or "1ms to 60s, or 0"; empty: it is none.
  /// Changes the configuration. Errors: invalid_argument with the text and what it may be.
  void (*set)(configuration& settings, std::string_view text);
  /// The value as set() reads it back.
  std::string (*text)(const configuration& settings);
  /// Whether the value is in the range.
  bool (*fits)(const configuration& settings);
};

/// The table, in the order in which it is shown. It lives as long as the program. Threads: any.
[[nodiscard]] std::span<const setting> all_settings();

/// The setting called \p name. Errors: invalid_argument, naming the nearest one that exists.
[[nodiscard]] const setting& find_setting(std::string_view name);

/// Refuses a variable among \p names, all of which begin with TROUPE_, that is nearly the name of one that troupe
/// reads: one edit away, or two in a long name. Others may be a user's own. Errors: invalid_argument, naming the
/// nearest.
void check_variable_names(const std::vector<std::string>& names);
/// The same of those in this process's environment. Threads: any, as long as none changes the environment at that time.
void check_process_variables();

} // namespace troupe
