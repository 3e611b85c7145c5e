/// Settings as a file: one JSON object with each setting under its whole name, so that a name is spelt in one way
/// wherever it appears. Comments are allowed.
///
///     { "backend": "mock", "mock.devices": 2, "deadlines.form": "10s" } // numbers are bare; all else is quoted
#pragma once

#include <troupe/runtime/configuration/configuration.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

/// One line of a settings file, not yet looked at: neither its name nor its value need make sense.
struct settings_file_entry {
  std::string name;
  std::string value;
  std::size_t line; ///< From 1.
};

/// Errors: invalid_argument with the path and the line, for what cannot be read, is no regular file of 1 MiB at most,
/// is no JSON, holds something other than numbers and strings, or says a name twice.
[[nodiscard]] std::vector<settings_file_entry> read_settings_file(const std::filesystem::path& path);

/// The same of \p text, which errors say was read from \p path.
[[nodiscard]] std::vector<settings_file_entry> parse_settings_file(const std::filesystem::path& path, std::string text);

/// A settings file that says all of \p settings. Errors: invalid_argument for a path that is not UTF-8, as JSON is.
[[nodiscard]] std::string format_settings_file(const configuration& settings);

} // namespace troupe
