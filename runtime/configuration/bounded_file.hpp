/// Reads a file that a user names, without trusting it: devices and pipes are refused, and so is what is too large.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace troupe {

/// The text of the regular file at \p path. It never blocks on a pipe. Errors: invalid_argument ("\p what PATH cannot
/// be read (REASON)", then \p remedy) for what is absent, no regular file, or larger than \p most_bytes.
[[nodiscard]] std::string read_bounded_file(std::string_view what, const std::filesystem::path& path,
                                            std::size_t most_bytes, std::string_view remedy);

} // namespace troupe
