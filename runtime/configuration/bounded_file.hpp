/// Reads a file that a user names without trusting it: devices, pipes and files over a size limit are refused.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace troupe {

/// Returns the text of the regular file at \p path. Never blocks on a pipe. Errors: invalid_argument ("\p what PATH
/// cannot be read (REASON)", then \p remedy) if the file is absent, is not a regular file, or is larger than \p
/// most_bytes.
[[nodiscard]] std::string read_bounded_file(std::string_view what, const std::filesystem::path& path,
                                            std::size_t most_bytes, std::string_view remedy);

} // namespace troupe
