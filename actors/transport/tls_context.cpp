#include <troupe/actors/transport/guard_identity.hpp>

#include <troupe/device/error.hpp>

#include <openssl/err.h>
#include <openssl/ssl.h>

namespace troupe {

namespace {

constexpr int most_certificates_between = 4;
constexpr long most_chain_bytes = 64L << 10;
constexpr int tls_security_level = 2;

/// Cipher suites of TLS 1.2: only those with forward secrecy and authenticated encryption. TLS 1.3 has no others.
constexpr const char* ciphers_of_tls_1_2 = "ECDHE+AESGCM:ECDHE+CHACHA20";

} // namespace

openssl_owner<ssl_ctx_st> make_tls_context(guard_side side, const guard_identity& identity) {
  openssl_owner<ssl_ctx_st> made{SSL_CTX_new(side == guard_side::listener ? TLS_server_method() : TLS_client_method())};
  SSL_CTX* context = made.get();
  bool is_well = context != nullptr;
  const auto must = [&](long returned) { is_well = is_well && returned == 1; };
  if (is_well) {
    SSL_CTX_set_security_level(context, tls_security_level);
    must(SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION));
    must(SSL_CTX_set_cipher_list(context, ciphers_of_tls_1_2));
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    must(SSL_CTX_set_num_tickets(context, 0));
    SSL_CTX_set_mode(context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    SSL_CTX_set_verify_depth(context, most_certificates_between);
    SSL_CTX_set_max_cert_list(context, most_chain_bytes);
    SSL_CTX_set1_cert_store(context, identity.trusted.get());
    must(SSL_CTX_use_certificate(context, identity.certificate.get()));
    must(SSL_CTX_use_PrivateKey(context, identity.key.get()));
    for (const auto& one : identity.between) must(SSL_CTX_add1_chain_cert(context, one.get()));
  }
  if (is_well) return made;
  const unsigned long code = ERR_peek_error();
  const char* words = ERR_reason_error_string(code);
  ERR_clear_error();
  throw exception{error{.code = errc::internal,
                        .text = "OpenSSL refused the settings of TLS, or the certificate with them",
                        .call = "SSL_CTX_new",
                        .native_code = static_cast<int>(ERR_GET_REASON(code)),
                        .native_text = words == nullptr ? "" : words}};
}

} // namespace troupe
