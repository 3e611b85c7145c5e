#include <troupe/processes/transport/openssl_owner.hpp>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace troupe {

void openssl_free::operator()(bio_st* one) const noexcept {
  BIO_free(one);
}

void openssl_free::operator()(evp_cipher_ctx_st* one) const noexcept {
  EVP_CIPHER_CTX_free(one);
}

void openssl_free::operator()(evp_pkey_st* one) const noexcept {
  EVP_PKEY_free(one);
}

void openssl_free::operator()(ssl_ctx_st* one) const noexcept {
  SSL_CTX_free(one);
}

void openssl_free::operator()(ssl_st* one) const noexcept {
  SSL_free(one);
}

void openssl_free::operator()(x509_st* one) const noexcept {
  X509_free(one);
}

void openssl_free::operator()(x509_store_st* one) const noexcept {
  X509_STORE_free(one);
}

} // namespace troupe
