/// What went wrong with TLS, in the words of somebody who has to mend it.
#pragma once

#include <troupe/actors/transport/guard_event.hpp>

#include <string>

struct ssl_st;

namespace troupe {

/// What is known of a failed call beside the session itself.
struct tls_failure {
  int returned = 0;            ///< SSL_get_error's verdict.
  int system_code = 0;         ///< errno right after the call.
  bool in_handshake = false;   ///< Whether the call was of the handshake.
  std::string expected_peer{}; ///< The name that the other side's certificate has to have; empty for any.
};

/// Reads the calling thread's queue of OpenSSL's errors. The text holds fixed words only, nothing that the peer sent.
[[nodiscard]] guard_fault tls_fault(const ssl_st& session, const tls_failure& failure);

/// Why a certificate was not accepted: X509_V_ERR_… as a predicate.
[[nodiscard]] std::string certificate_fault_text(long verify_code, const std::string& expected_peer);

} // namespace troupe
