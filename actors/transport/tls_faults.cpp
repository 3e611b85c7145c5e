#include <troupe/actors/transport/tls_faults.hpp>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <cstring>

namespace troupe {

namespace {

/// Returns OpenSSL's fixed text for an error code.
std::string reason_words(unsigned long code) {
  const char* words = ERR_reason_error_string(code);
  return words == nullptr ? "no reason given" : words;
}

/// Returns the fault that the other side's alert reports about us.
guard_fault alert_fault(int reason) {
  switch (reason) {
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
      return {guard_event_kind::bad_certificate, "refused our certificate: it is not signed by the CA that it trusts"};
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
      return {guard_event_kind::bad_certificate, "refused our certificate: it has expired"};
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return {guard_event_kind::bad_certificate, "requires a certificate, and we presented none"};
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
      return {guard_event_kind::bad_certificate, "refused our certificate; its own log says why"};
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
      return {guard_event_kind::bad_protocol, "supports no version of TLS that we support (1.2 or later)"};
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
      return {guard_event_kind::bad_protocol, "refused the TLS handshake; its own log says why"};
    default: return {};
  }
}

guard_fault own_fault(const ssl_st& session, int reason, const std::string& expected_peer) {
  switch (reason) {
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
      return {guard_event_kind::bad_certificate,
              certificate_fault_text(SSL_get_verify_result(&session), expected_peer)};
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return {guard_event_kind::bad_certificate, "presented no certificate"};
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
    case SSL_R_NO_PROTOCOLS_AVAILABLE:
    case SSL_R_WRONG_SSL_VERSION: return {guard_event_kind::bad_protocol, "does not support TLS 1.2 or later"};
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
      return {guard_event_kind::bad_protocol, "has no cipher in common with us: is its TLS library a very old one?"};
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_UNKNOWN_PROTOCOL:
    case SSL_R_RECORD_LENGTH_MISMATCH:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_BAD_RECORD_TYPE:
    case SSL_R_UNEXPECTED_MESSAGE:
      return {guard_event_kind::bad_protocol, "does not speak TLS: is it in plain mode, or not a process of troupe?"};
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
      return {guard_event_kind::broken, "closed the connection without TLS's close_notify"};
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

guard_fault tls_fault(const ssl_st& session, const tls_failure& failure) {
  const std::string when = failure.in_handshake ? " during the TLS handshake" : "";
  const unsigned long code = ERR_peek_error();
  if (failure.returned == SSL_ERROR_SYSCALL || code == 0)
    return {
        guard_event_kind::broken,
        "broke the connection off" + when +
            (failure.system_code == 0 ? std::string{} : " (" + std::string{std::strerror(failure.system_code)} + ")")};
  const int reason = ERR_GET_REASON(code);
  if (guard_fault of_us = alert_fault(reason); !of_us.text.empty()) return of_us;
  if (guard_fault of_peer = own_fault(session, reason, failure.expected_peer); !of_peer.text.empty()) {
    if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING && failure.in_handshake)
      of_peer.text = "closed the connection" + when;
    return of_peer;
  }
  return {guard_event_kind::bad_protocol, "violated the TLS protocol" + when + " (" + reason_words(code) + ")"};
}

} // namespace troupe
