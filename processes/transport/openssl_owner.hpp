/// Provides owners of OpenSSL objects for headers that do not include OpenSSL.
#pragma once

#include <memory>

struct bio_st;
struct evp_cipher_ctx_st;
struct evp_pkey_st;
struct ssl_ctx_st;
struct ssl_st;
struct x509_st;
struct x509_store_st;

namespace troupe {

/// Frees each type of OpenSSL object with its own function.
struct openssl_free {
  void operator()(bio_st* one) const noexcept;
  void operator()(evp_cipher_ctx_st* one) const noexcept;
  void operator()(evp_pkey_st* one) const noexcept;
  void operator()(ssl_ctx_st* one) const noexcept;
  void operator()(ssl_st* one) const noexcept;
  void operator()(x509_st* one) const noexcept;
  void operator()(x509_store_st* one) const noexcept;
};

/// Owns one OpenSSL object.
template <class T>
using openssl_owner = std::unique_ptr<T, openssl_free>;

} // namespace troupe
