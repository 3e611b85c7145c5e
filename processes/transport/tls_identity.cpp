#include <troupe/processes/transport/tls_identity.hpp>

#include <troupe/device/error.hpp>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_pem_bytes = 1U << 20;
constexpr int seconds_of_a_day = 86'400;
constexpr int days_of_warning = 7;
constexpr int security_level = 2; ///< OpenSSL's level 2: RSA of at least 2,048 bits, no SHA-1.

std::string quoted(const std::filesystem::path& file) {
  return "'" + file.string() + "'";
}

[[noreturn]] void refuse_file(const std::string& what, const std::filesystem::path& file, const std::string& fault) {
  ERR_clear_error();
  throw exception{errc::invalid_argument, "the " + what + " file " + quoted(file) + " " + fault};
}

/// Holds the text of a PEM file and wipes it from memory in the destructor.
struct pem_text {
  pem_text() = default;
  pem_text(const pem_text&) = delete;
  pem_text& operator=(const pem_text&) = delete;
  ~pem_text() { OPENSSL_cleanse(text.data(), text.size()); }

  [[nodiscard]] openssl_owner<bio_st> reader() const {
    openssl_owner<bio_st> made{BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))};
    if (!made) throw exception{errc::out_of_memory, "OpenSSL could not read from memory"};
    return made;
  }

  std::string text;
};

void read_pem(const std::string& what, const std::filesystem::path& file, pem_text& into) {
  if (file.empty())
    throw exception{errc::invalid_argument, "mutual TLS needs a " + what +
                                                " file, and none is named: `troupe certs` makes "
                                                "one"};
  std::error_code none;
  if (std::filesystem::is_directory(file, none)) refuse_file(what, file, "is a folder");
  std::ifstream from{file, std::ios::binary};
  if (const int code = errno; !from)
    throw exception{error{.code = errc::missing,
                          .text = "the " + what + " file " + quoted(file) +
                                  " cannot be read: " + std::generic_category().message(code),
                          .call = "open",
                          .native_code = code}};
  into.text.resize(most_pem_bytes + 1);
  from.read(into.text.data(), static_cast<std::streamsize>(into.text.size()));
  into.text.resize(static_cast<std::size_t>(from.gcount()));
  if (into.text.size() > most_pem_bytes)
    refuse_file(what, file, "is larger than 1 MiB: it is not a PEM file of troupe");
}

std::vector<openssl_owner<x509_st>> read_certificates(const std::string& what, const std::filesystem::path& file) {
  pem_text pem;
  read_pem(what, file, pem);
  const openssl_owner<bio_st> from = pem.reader();
  std::vector<openssl_owner<x509_st>> found;
  while (openssl_owner<x509_st> one{PEM_read_bio_X509(from.get(), nullptr, nullptr, nullptr)})
    found.push_back(std::move(one));
  const int reason = ERR_GET_REASON(ERR_peek_last_error());
  if (found.empty() || (reason != 0 && reason != PEM_R_NO_START_LINE))
    refuse_file(what, file, "holds no certificate in PEM");
  ERR_clear_error();
  return found;
}

/// A passphrase callback for OpenSSL that never prompts and returns no passphrase.
int no_passphrase(char*, int, int, void*) {
  return 0;
}

openssl_owner<evp_pkey_st> read_key(const std::filesystem::path& file) {
  pem_text pem;
  read_pem("key", file, pem);
  const openssl_owner<bio_st> from = pem.reader();
  openssl_owner<evp_pkey_st> found{PEM_read_bio_PrivateKey(from.get(), nullptr, &no_passphrase, nullptr)};
  if (!found)
    refuse_file("key", file, "holds no private key in PEM, or one with a passphrase: use a key without a passphrase");
  return found;
}

std::string day_of(const ASN1_TIME* when) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(when, &parts) != 1) return "an unknown day";
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &parts)};
}

struct free_store_context {
  void operator()(X509_STORE_CTX* one) const noexcept { X509_STORE_CTX_free(one); }
};

/// Verifies this process's own certificate in the same way as the other side will.
void verify_own(connection_side side, const tls_identity& identity, const transport_credentials& files) {
  const std::unique_ptr<X509_STORE_CTX, free_store_context> check{X509_STORE_CTX_new()};
  const std::unique_ptr<STACK_OF(X509), void (*)(STACK_OF(X509)*)> between{
      sk_X509_new_null(), [](STACK_OF(X509) * one) { sk_X509_free(one); }};
  if (!check || !between) throw exception{errc::out_of_memory, "OpenSSL could not check a certificate"};
  for (const auto& one : identity.between) sk_X509_push(between.get(), one.get());
  X509_STORE_CTX_init(check.get(), identity.trusted.get(), identity.certificate.get(), between.get());
  X509_STORE_CTX_set_purpose(check.get(),
                             side == connection_side::listener ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT);
  X509_VERIFY_PARAM_set_auth_level(X509_STORE_CTX_get0_param(check.get()), security_level);
  if (X509_verify_cert(check.get()) == 1) return;

  const int code = X509_STORE_CTX_get_error(check.get());
  const X509* at = X509_STORE_CTX_get_current_cert(check.get());
  const bool is_ours = X509_STORE_CTX_get_error_depth(check.get()) == 0;
  const std::string what = is_ours ? "certificate" : "CA's";
  const std::filesystem::path& file = is_ours ? files.certificate_file : files.ca_file;
  switch (code) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      refuse_file(what, file, "has expired on " + day_of(X509_get0_notAfter(at)) + ": `troupe certs` makes new ones");
    case X509_V_ERR_CERT_NOT_YET_VALID:
      refuse_file(what, file,
                  "is not valid before " + day_of(X509_get0_notBefore(at)) + ": check this machine's clock");
    case X509_V_ERR_INVALID_PURPOSE:
      refuse_file(what, file,
                  side == connection_side::listener
                      ? "is not made for a server: give the controller its own certificate, not a host's"
                      : "is not made for a client: give a process a host's certificate, not the controller's");
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      refuse_file("certificate", files.certificate_file, "is not signed by the CA in " + quoted(files.ca_file));
    default: refuse_file(what, file, "is not accepted: " + std::string{X509_verify_cert_error_string(code)});
  }
}

void warn(tls_identity& identity, const transport_credentials& files) {
  struct stat found {};
  if (::stat(files.key_file.c_str(), &found) == 0 && (found.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    identity.warnings.push_back("the key file " + quoted(files.key_file) +
                                " can be read or written by others: chmod 600 it");
  std::time_t soon = std::time(nullptr) + std::time_t{days_of_warning} * seconds_of_a_day;
  const ASN1_TIME* last = X509_get0_notAfter(identity.certificate.get());
  if (X509_cmp_time(last, &soon) < 0)
    identity.warnings.push_back("the certificate file " + quoted(files.certificate_file) + " expires on " +
                                day_of(last) + ": `troupe certs` makes new ones");
}

} // namespace

tls_identity read_tls_identity(connection_side side, const transport_credentials& credentials) {
  tls_identity made;
  made.trusted.reset(X509_STORE_new());
  if (!made.trusted) throw exception{errc::out_of_memory, "OpenSSL could not make a store of certificates"};
  for (const auto& one : read_certificates("CA", credentials.ca_file))
    X509_STORE_add_cert(made.trusted.get(), one.get());

  made.between = read_certificates("certificate", credentials.certificate_file);
  made.certificate = std::move(made.between.front());
  made.between.erase(made.between.begin());
  made.key = read_key(credentials.key_file);
  if (X509_check_private_key(made.certificate.get(), made.key.get()) != 1)
    refuse_file("key", credentials.key_file,
                "does not belong to the certificate in " + quoted(credentials.certificate_file));
  verify_own(side, made, credentials);
  warn(made, credentials);
  ERR_clear_error();
  return made;
}

std::vector<std::string> check_credentials(transport_mode mode, connection_side side,
                                           const transport_credentials& credentials) {
  static_cast<void>(join_secret{credentials.token});
  if (mode == transport_mode::plain) return {};
  return read_tls_identity(side, credentials).warnings;
}

namespace {

constexpr int most_certificates_between = 4;
constexpr long most_chain_bytes = 64L << 10;

/// Cipher suites of TLS 1.2: only those with forward secrecy and authenticated encryption. TLS 1.3 has no others.
constexpr const char* ciphers_of_tls_1_2 = "ECDHE+AESGCM:ECDHE+CHACHA20";

} // namespace

openssl_owner<ssl_ctx_st> make_tls_context(connection_side side, const tls_identity& identity) {
  openssl_owner<ssl_ctx_st> made{
      SSL_CTX_new(side == connection_side::listener ? TLS_server_method() : TLS_client_method())};
  SSL_CTX* context = made.get();
  bool is_well = context != nullptr;
  const auto must = [&](long returned) { is_well = is_well && returned == 1; };
  if (is_well) {
    SSL_CTX_set_security_level(context, security_level);
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
                        .text = "OpenSSL refused the TLS settings or the certificate",
                        .call = "SSL_CTX_new",
                        .native_code = static_cast<int>(ERR_GET_REASON(code)),
                        .native_text = words == nullptr ? "" : words}};
}

} // namespace troupe
