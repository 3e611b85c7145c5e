/// A guard's credentials as they are once read and checked.
#pragma once

#include <troupe/actors/transport/guard_credentials.hpp>
#include <troupe/actors/transport/openssl_owner.hpp>

#include <string>
#include <vector>

namespace troupe {

/// Certificate, key and CA of one process. Movable only.
struct guard_identity {
  openssl_owner<x509_st> certificate;
  std::vector<openssl_owner<x509_st>> between; ///< Certificates between ours and the CA's.
  openssl_owner<evp_pkey_st> key;
  openssl_owner<x509_store_st> trusted; ///< Holds the CA's certificates alone.
  std::vector<std::string> warnings;
};

/// Reads and checks. Errors: as check_guard_credentials.
[[nodiscard]] guard_identity read_guard_identity(guard_side side, const guard_credentials& credentials);

/// TLS as this project speaks it: 1.2 or later, the other side's certificate demanded and verified, sessions never
/// resumed (a resumed one would skip the certificate's dates), nothing renegotiated.
///
/// Errors: internal, where OpenSSL refuses.
[[nodiscard]] openssl_owner<ssl_ctx_st> make_tls_context(guard_side side, const guard_identity& identity);

} // namespace troupe
