/// What both guards do before they start.
#pragma once

#include <troupe/actors/transport/guard_address.hpp>
#include <troupe/actors/transport/guard_credentials.hpp>
#include <troupe/actors/transport/guarded_connection.hpp>

#include <string>
#include <vector>

namespace troupe {

/// Refuses addresses that \p mode does not protect (SEC-1). Errors: invalid_argument, with the remedy.
void require_protected(guard_mode mode, const std::string& host, const std::vector<guard_address>& addresses);

/// Refuses bounds that nothing could pass. Errors: invalid_argument.
void require_sensible(const guard_limits& limits);

/// Reads and checks the credentials, makes TLS of them where \p terms have it, and reports warnings.
/// Errors: as check_guard_credentials.
void arm(guard_terms& terms, guard_side side, const guard_credentials& credentials);

} // namespace troupe
