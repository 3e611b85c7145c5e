/// Implements the checks that guard_listener and guard_dialer perform before they start.
#pragma once

#include <troupe/actors/transport/guard_address.hpp>
#include <troupe/actors/transport/guard_credentials.hpp>
#include <troupe/actors/transport/guarded_connection.hpp>

#include <string>
#include <vector>

namespace troupe {

/// Throws for addresses that \p mode does not protect (SEC-1). Errors: invalid_argument, with the remedy.
void require_protected(guard_mode mode, const std::string& host, const std::vector<guard_address>& addresses);

/// Throws for limits that are not positive. Errors: invalid_argument.
void require_sensible(const guard_limits& limits);

/// Reads and checks the credentials, creates the TLS context if \p terms need one, and reports warnings.
/// Errors: as check_guard_credentials.
void arm(guard_terms& terms, guard_side side, const guard_credentials& credentials);

} // namespace troupe
