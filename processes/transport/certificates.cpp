#include <troupe/processes/transport/certificates.hpp>

#include <troupe/device/error.hpp>
#include <troupe/device/file_descriptor.hpp>
#include <troupe/processes/transport/join_secret.hpp>

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string_view>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

constexpr int serial_bytes = 16;
constexpr std::size_t longest_host_name = 253;

[[noreturn]] void openssl_failed(const char* call) {
  const unsigned long code = ERR_peek_error();
  const char* words = ERR_reason_error_string(code);
  ERR_clear_error();
  throw exception{error{.code = errc::internal,
                        .text = "OpenSSL could not make a certificate",
                        .call = call,
                        .native_code = static_cast<int>(ERR_GET_REASON(code)),
                        .native_text = words == nullptr ? "" : words}};
}

void made_or_throw(bool is_made, const char* call) {
  if (!is_made) openssl_failed(call);
}

openssl_owner<evp_pkey_st> new_key() {
  openssl_owner<evp_pkey_st> made{EVP_EC_gen("P-256")};
  made_or_throw(made != nullptr, "EVP_EC_gen");
  return made;
}

void set_serial(X509* certificate) {
  std::array<unsigned char, serial_bytes> bytes{};
  made_or_throw(RAND_bytes(bytes.data(), serial_bytes) == 1, "RAND_bytes");
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x3fU) | 0x40U); // positive and of full length
  const std::unique_ptr<BIGNUM, decltype(&BN_free)> serial{BN_bin2bn(bytes.data(), serial_bytes, nullptr), &BN_free};
  made_or_throw(serial != nullptr && BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate)) != nullptr,
                "BN_to_ASN1_INTEGER");
}

void set_span(X509* certificate, certificate_span span) {
  const std::time_t from = std::chrono::system_clock::to_time_t(span.from);
  const std::time_t to = std::chrono::system_clock::to_time_t(span.to);
  made_or_throw(ASN1_TIME_set(X509_getm_notBefore(certificate), from) != nullptr &&
                    ASN1_TIME_set(X509_getm_notAfter(certificate), to) != nullptr,
                "ASN1_TIME_set");
}

void set_name(X509* certificate, const std::string& name) {
  const auto* const text = reinterpret_cast<const unsigned char*>(name.c_str());
  made_or_throw(X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8, text, -1, -1, 0) ==
                    1,
                "X509_NAME_add_entry_by_txt");
}

void extend(X509* certificate, X509* issuer, int what, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)> extension{
      X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str()), &X509_EXTENSION_free};
  made_or_throw(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1, "X509V3_EXT_conf_nid");
}

/// Returns a certificate without extensions and signature.
openssl_owner<x509_st> draft(const std::string& name, EVP_PKEY* key, certificate_span span) {
  openssl_owner<x509_st> made{X509_new()};
  made_or_throw(made != nullptr && X509_set_version(made.get(), X509_VERSION_3) == 1, "X509_new");
  set_serial(made.get());
  set_span(made.get(), span);
  set_name(made.get(), name);
  made_or_throw(X509_set_pubkey(made.get(), key) == 1, "X509_set_pubkey");
  return made;
}

bool is_host_name(const std::string& host) {
  return !host.empty() && host.size() <= longest_host_name &&
         std::all_of(host.begin(), host.end(), [](unsigned char one) {
           return std::isalnum(one) != 0 || one == '-' || one == '.' || one == '_';
         });
}

/// Returns the subject's alternative names in the syntax of OpenSSL's configuration.
std::string alternative_names(const std::vector<std::string>& hosts) {
  std::string all;
  for (const std::string& host : hosts) {
    std::array<unsigned char, 16> address{};
    const bool is_address =
        inet_pton(AF_INET, host.c_str(), address.data()) == 1 || inet_pton(AF_INET6, host.c_str(), address.data()) == 1;
    if (!is_address && !is_host_name(host))
      throw exception{errc::invalid_argument, "'" + host + "' is neither a host's name nor an IP address"};
    all += (all.empty() ? "" : ",") + std::string{is_address ? "IP:" : "DNS:"} + host;
  }
  return all;
}

template <class Write>
std::string pem_of(Write write) {
  const openssl_owner<bio_st> to{BIO_new(BIO_s_secmem())}; // wiped when freed
  made_or_throw(to != nullptr && write(to.get()) == 1, "PEM_write_bio");
  char* text = nullptr;
  const long length = BIO_get_mem_data(to.get(), &text);
  return {text, static_cast<std::size_t>(length)};
}

certificate_pair pem_pair(X509* certificate, EVP_PKEY* key) {
  return {
      .certificate = pem_of([&](BIO* to) { return PEM_write_bio_X509(to, certificate); }),
      .key = pem_of([&](BIO* to) { return PEM_write_bio_PrivateKey(to, key, nullptr, nullptr, 0, nullptr, nullptr); })};
}

} // namespace

certificate_span valid_for(std::chrono::hours how_long) {
  const auto now = std::chrono::system_clock::now();
  return {.from = now - std::chrono::hours{1}, .to = now + how_long};
}

certificate_authority::certificate_authority(const std::string& name, certificate_span span)
  : key_{new_key()}, certificate_{draft(name, key_.get(), span)} {
  X509* const own = certificate_.get();
  made_or_throw(X509_set_issuer_name(own, X509_get_subject_name(own)) == 1, "X509_set_issuer_name");
  extend(own, own, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  extend(own, own, NID_key_usage, "critical,keyCertSign,cRLSign");
  extend(own, own, NID_subject_key_identifier, "hash");
  made_or_throw(X509_sign(own, key_.get(), EVP_sha256()) > 0, "X509_sign");
}

certificate_pair certificate_authority::own() const {
  return pem_pair(certificate_.get(), key_.get());
}

certificate_pair certificate_authority::issue(certificate_use use, const std::vector<std::string>& hosts,
                                              certificate_span span) const {
  const bool is_controller = use == certificate_use::controller;
  const std::string names = alternative_names(hosts);
  const openssl_owner<evp_pkey_st> key = new_key();
  const openssl_owner<x509_st> made = draft(is_controller ? "troupe controller" : "troupe host", key.get(), span);
  X509* const issuer = certificate_.get();
  made_or_throw(X509_set_issuer_name(made.get(), X509_get_subject_name(issuer)) == 1, "X509_set_issuer_name");
  extend(made.get(), issuer, NID_basic_constraints, "critical,CA:FALSE");
  extend(made.get(), issuer, NID_key_usage, "critical,digitalSignature");
  extend(made.get(), issuer, NID_ext_key_usage, is_controller ? "serverAuth" : "clientAuth");
  extend(made.get(), issuer, NID_subject_key_identifier, "hash");
  extend(made.get(), issuer, NID_authority_key_identifier, "keyid");
  if (!names.empty()) extend(made.get(), issuer, NID_subject_alt_name, names);
  made_or_throw(X509_sign(made.get(), key_.get(), EVP_sha256()) > 0, "X509_sign");
  return pem_pair(made.get(), key.get());
}

namespace {

constexpr int longest_days = 3'650;
constexpr mode_t owner_only = S_IRUSR | S_IWUSR;

[[noreturn]] void system_failed(const char* call, const std::string& what) {
  const int code = errno;
  throw_system_error(code == EEXIST ? errc::invalid_argument : errc::internal, call, what, code);
}

void write_new_file(const std::filesystem::path& file, std::string_view text) {
  const file_descriptor to{::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, owner_only)};
  if (!to) system_failed("open", "'" + file.string() + "' could not be created");
  while (!text.empty()) {
    const ssize_t written = ::write(to.native(), text.data(), text.size());
    if (written < 0) system_failed("write", "'" + file.string() + "' could not be written");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code problem;
  if (folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path(), problem);
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && (errno != EEXIST || !std::filesystem::is_directory(folder, problem)))
    system_failed("mkdir", "the folder '" + folder.string() + "' could not be created");
}

struct planned_file {
  const char* name;
  std::string text;
  const char* purpose;
};

} // namespace

std::vector<made_file> make_certificates(const certificate_options& options) {
  if (options.folder.empty()) throw exception{errc::invalid_argument, "name the folder to put certificates into"};
  if (options.days < 1 || options.days > longest_days)
    throw exception{errc::invalid_argument, "certificates cannot be valid for " + std::to_string(options.days) +
                                                " days: choose 1 to " + std::to_string(longest_days)};
  std::vector<std::string> hosts{"localhost", "127.0.0.1", "::1"};
  hosts.insert(hosts.end(), options.hosts.begin(), options.hosts.end());

  const certificate_span span = valid_for(std::chrono::hours{24} * options.days);
  const certificate_authority authority{"troupe test CA", span};
  certificate_pair own = authority.own();
  certificate_pair controller = authority.issue(certificate_use::controller, hosts, span);
  certificate_pair host = authority.issue(certificate_use::host, hosts, span);
  std::vector<planned_file> all;
  all.push_back({"ca.pem", std::move(own.certificate), "the CA's certificate: every process needs it"});
  all.push_back({"ca.key", std::move(own.key), "the CA's private key: no process needs it; store it elsewhere"});
  all.push_back({"controller.pem", std::move(controller.certificate), "the controller's certificate"});
  all.push_back({"controller.key", std::move(controller.key), "the controller's key"});
  all.push_back({"host.pem", std::move(host.certificate), "the other processes' certificate"});
  all.push_back({"host.key", std::move(host.key), "the other processes' key"});
  all.push_back({"join.token", make_join_token() + "\n", "the join token: every process needs it"});

  make_folder(options.folder);
  std::vector<made_file> made;
  for (const planned_file& one : all) {
    const std::filesystem::path file = options.folder / one.name;
    if (std::error_code none; std::filesystem::exists(std::filesystem::symlink_status(file, none)))
      throw exception{errc::invalid_argument, "'" + file.string() +
                                                  "' already exists and is not overwritten: choose another folder, or "
                                                  "remove files that no process uses any more"};
    made.push_back({file, one.purpose});
  }
  for (planned_file& one : all) {
    write_new_file(options.folder / one.name, one.text);
    OPENSSL_cleanse(one.text.data(), one.text.size());
  }
  return made;
}

} // namespace troupe
