/// Defines the credentials with which a process authenticates itself, and what it requires of its peers.
#pragma once

#include <troupe/actors/control/controller_terms.hpp>
#include <troupe/actors/transport/guard_limits.hpp>
#include <troupe/actors/transport/join_secret.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

/// Checks everything that can be checked without the other side: files exist and have the right content, the key
/// belongs to the certificate, the CA has signed it for this \p side, nothing has expired, and the token has a valid
/// length. Returns warnings as lines for people: a key that others may read, a certificate that expires within a week.
///
/// Errors: missing for a file that cannot be read; invalid_argument for anything else. Texts name the file.
[[nodiscard]] std::vector<std::string> check_guard_credentials(guard_mode mode, guard_side side,
                                                               const guard_credentials& credentials);

/// Returns the join token in \p file: its first line. A file that others may read is refused, because the whole token
/// is secret.
///
/// Errors: missing if it cannot be read; invalid_argument if the token is too long or others have access.
[[nodiscard]] std::string read_join_token(const std::filesystem::path& file);

} // namespace troupe
