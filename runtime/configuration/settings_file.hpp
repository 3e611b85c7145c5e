/// Settings as a file: one JSON object with the full name of each setting as key, so that a name has the same spelling
/// everywhere. Comments are allowed.
///
///     { "backend": "mock", "mock.devices": 2, "deadlines.form": "10s" } // numbers are bare; all else is quoted
#pragma once

#include <troupe/runtime/configuration/configuration.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

/// One entry of a settings file. Neither the name nor the value has been validated.
struct settings_file_entry {
  std::string name;
  std::string value;
  std::size_t line; ///< From 1.
};

/// Reads the entries of the file at \p path. Errors: invalid_argument with the path and the line, if the file cannot be
/// read, is not a regular file of at most 1 MiB, is not JSON, has values other than numbers and strings, or names a
/// setting twice.
[[nodiscard]] std::vector<settings_file_entry> read_settings_file(const std::filesystem::path& path);

/// The same for \p text. Errors name \p path as its origin.
[[nodiscard]] std::vector<settings_file_entry> parse_settings_file(const std::filesystem::path& path, std::string text);

/// Returns a settings file with all of \p settings. Errors: invalid_argument for a path that is not UTF-8, as JSON
/// requires.
[[nodiscard]] std::string format_settings_file(const configuration& settings);

} // namespace troupe
