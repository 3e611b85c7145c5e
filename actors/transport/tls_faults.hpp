/// Describes TLS errors in terms of their remedy.
#pragma once

#include <troupe/actors/transport/guard_event.hpp>

#include <string>

struct ssl_st;

namespace troupe {

/// The facts about a failed call besides the session itself.
struct tls_failure {
  int returned = 0;            ///< The result of SSL_get_error.
  int system_code = 0;         ///< errno directly after the call.
  bool in_handshake = false;   ///< Whether the call belonged to the handshake.
  std::string expected_peer{}; ///< The name that the other side's certificate must have; empty: any.
};

/// Reads the calling thread's queue of OpenSSL errors and returns the fault. The text holds fixed words only, nothing
/// that the peer sent.
[[nodiscard]] guard_fault tls_fault(const ssl_st& session, const tls_failure& failure);

/// Describes why a certificate was not accepted: X509_V_ERR_… as a predicate.
[[nodiscard]] std::string certificate_fault_text(long verify_code, const std::string& expected_peer);

} // namespace troupe
