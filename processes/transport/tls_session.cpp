#include <troupe/processes/transport/tls_session.hpp>

#include <troupe/device/error.hpp>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <climits>

namespace troupe {

namespace {

/// Returns OpenSSL's fixed text for an error code.
std::string reason_words(unsigned long code) {
  const char* words = ERR_reason_error_string(code);
  return words == nullptr ? "no reason given" : words;
}

/// Returns the fault that the other side's alert reports about us.
transport_fault alert_fault(int reason) {
  switch (reason) {
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
      return {transport_event_kind::bad_certificate,
              "refused our certificate: it is not signed by the CA that it trusts"};
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
      return {transport_event_kind::bad_certificate, "refused our certificate: it has expired"};
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return {transport_event_kind::bad_certificate, "requires a certificate, and we presented none"};
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
      return {transport_event_kind::bad_certificate, "refused our certificate; its own log says why"};
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
      return {transport_event_kind::bad_protocol, "supports no version of TLS that we support (1.2 or later)"};
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
      return {transport_event_kind::bad_protocol, "refused the TLS handshake; its own log says why"};
    default: return {};
  }
}

transport_fault own_fault(const ssl_st& session, int reason, const std::string& expected_peer) {
  switch (reason) {
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
      return {transport_event_kind::bad_certificate,
              certificate_fault_text(SSL_get_verify_result(&session), expected_peer)};
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return {transport_event_kind::bad_certificate, "presented no certificate"};
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
    case SSL_R_NO_PROTOCOLS_AVAILABLE:
    case SSL_R_WRONG_SSL_VERSION: return {transport_event_kind::bad_protocol, "does not support TLS 1.2 or later"};
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
      return {transport_event_kind::bad_protocol,
              "has no cipher in common with us: is its TLS library a very old one?"};
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_UNKNOWN_PROTOCOL:
    case SSL_R_RECORD_LENGTH_MISMATCH:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_BAD_RECORD_TYPE:
    case SSL_R_UNEXPECTED_MESSAGE:
      return {transport_event_kind::bad_protocol,
              "does not speak TLS: is it in plain mode, or not a process of troupe?"};
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
      return {transport_event_kind::broken, "closed the connection without TLS's close_notify"};
    default: return {};
  }
}

} // namespace

std::string certificate_fault_text(long verify_code, const std::string& expected_peer) {
  switch (verify_code) {
    case X509_V_ERR_CERT_HAS_EXPIRED: return "presented a certificate that has expired";
    case X509_V_ERR_CERT_NOT_YET_VALID: return "presented a certificate that is not valid yet: compare the clocks";
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_CERT_UNTRUSTED: return "presented a certificate that is not signed by our CA";
    case X509_V_ERR_INVALID_PURPOSE:
      return "presented a certificate that is not made for its side (a controller's is for servers, a host's for "
             "clients)";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH: return "presented a certificate that does not name '" + expected_peer + "'";
    default:
      return "presented a certificate that is not accepted (" +
             std::string{X509_verify_cert_error_string(verify_code)} + ")";
  }
}

transport_fault tls_fault(const ssl_st& session, bool in_handshake, const std::string& expected_peer) {
  const std::string when = in_handshake ? " during the TLS handshake" : "";
  const unsigned long code = ERR_peek_error();
  if (code == 0) return {transport_event_kind::broken, "broke off the connection" + when};
  const int reason = ERR_GET_REASON(code);
  if (transport_fault of_us = alert_fault(reason); !of_us.text.empty()) return of_us;
  if (transport_fault of_peer = own_fault(session, reason, expected_peer); !of_peer.text.empty()) {
    if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING && in_handshake) of_peer.text = "closed the connection" + when;
    return of_peer;
  }
  return {transport_event_kind::bad_protocol, "violated the TLS protocol" + when + " (" + reason_words(code) + ")"};
}

namespace {

constexpr std::string_view binding_label = "EXPORTER-troupe-transport";
constexpr std::size_t read_bytes = 16U << 10; ///< One record.

int tls_length(std::size_t bytes) {
  return static_cast<int>(std::min<std::size_t>(bytes, INT_MAX));
}

void expect_peer(SSL* tls, const std::string& name) {
  X509_VERIFY_PARAM* rules = SSL_get0_param(tls);
  X509_VERIFY_PARAM_set_hostflags(rules, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  if (X509_VERIFY_PARAM_set1_ip_asc(rules, name.c_str()) == 1) return;
  if (X509_VERIFY_PARAM_set1_host(rules, name.c_str(), name.size()) != 1)
    throw exception{errc::invalid_argument, "'" + name + "' is not a name that a certificate can have"};
}

} // namespace

tls_session::tls_session(ssl_ctx_st& context, connection_side side, std::string expected_peer)
  : tls_{SSL_new(&context)}, expected_peer_{std::move(expected_peer)} {
  openssl_owner<bio_st> in{BIO_new(BIO_s_mem())};
  openssl_owner<bio_st> out{BIO_new(BIO_s_mem())};
  if (!tls_ || !in || !out) throw exception{errc::out_of_memory, "OpenSSL could not make the TLS side of a connection"};
  SSL_set_bio(tls_.get(), in.release(), out.release());
  if (!expected_peer_.empty()) expect_peer(tls_.get(), expected_peer_);
  side == connection_side::listener ? SSL_set_accept_state(tls_.get()) : SSL_set_connect_state(tls_.get());
}

void tls_session::feed(std::string_view bytes) {
  if (BIO_write(SSL_get_rbio(tls_.get()), bytes.data(), tls_length(bytes.size())) != tls_length(bytes.size()))
    throw exception{errc::out_of_memory, "OpenSSL could not buffer the bytes of a connection"};
}

void tls_session::feed_end() {
  BIO_set_mem_eof_return(SSL_get_rbio(tls_.get()), 0);
}

tls_progress tls_session::judge(int returned, bool in_handshake) {
  switch (SSL_get_error(tls_.get(), returned)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return tls_progress::blocked;
    case SSL_ERROR_ZERO_RETURN:
      if (!in_handshake) return tls_progress::ended;
      fault_ = {transport_event_kind::broken, "ended the connection during the TLS handshake"};
      return tls_progress::failed;
    default: break;
  }
  fault_ = tls_fault(*tls_, in_handshake, expected_peer_);
  ERR_clear_error();
  return tls_progress::failed;
}

tls_progress tls_session::handshake() {
  ERR_clear_error();
  const int returned = SSL_do_handshake(tls_.get());
  return returned == 1 ? tls_progress::done : judge(returned, true);
}

tls_progress tls_session::read(std::string& into) {
  std::array<char, read_bytes> plain{};
  for (;;) {
    ERR_clear_error();
    const int returned = SSL_read(tls_.get(), plain.data(), tls_length(plain.size()));
    if (returned <= 0) return judge(returned, false);
    into.append(plain.data(), static_cast<std::size_t>(returned));
  }
}

void tls_session::write(std::string_view bytes) {
  while (!bytes.empty() && fault_.text.empty()) {
    ERR_clear_error();
    const int returned = SSL_write(tls_.get(), bytes.data(), tls_length(bytes.size()));
    if (returned <= 0) {
      judge(returned, false);
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(returned));
  }
}

void tls_session::finish() {
  if (!fault_.text.empty()) return; // a failed session must not send a close notification
  ERR_clear_error();
  SSL_shutdown(tls_.get());
  ERR_clear_error();
}

std::string tls_session::take_output() {
  BIO* const out = SSL_get_wbio(tls_.get());
  std::string made(BIO_ctrl_pending(out), '\0');
  if (!made.empty()) BIO_read(out, made.data(), tls_length(made.size()));
  return made;
}

join_digest tls_session::binding() const {
  join_digest made{};
  if (SSL_export_keying_material(tls_.get(), made.data(), made.size(), binding_label.data(), binding_label.size(),
                                 nullptr, 0, 0) != 1)
    throw exception{errc::internal, "OpenSSL could not export a value of a TLS session"};
  return made;
}

} // namespace troupe
