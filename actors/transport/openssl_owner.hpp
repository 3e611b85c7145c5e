/// Owners of OpenSSL's objects, in headers that do not include OpenSSL.
#pragma once

#include <memory>

struct bio_st;
struct evp_pkey_st;
struct ssl_ctx_st;
struct ssl_st;
struct x509_st;
struct x509_store_st;

namespace troupe {

/// Gives OpenSSL's objects back, each as OpenSSL wants it.
struct openssl_free {
  void operator()(bio_st* one) const noexcept;
  void operator()(evp_pkey_st* one) const noexcept;
  void operator()(ssl_ctx_st* one) const noexcept;
  void operator()(ssl_st* one) const noexcept;
  void operator()(x509_st* one) const noexcept;
  void operator()(x509_store_st* one) const noexcept;
};

/// Owns one of OpenSSL's objects.
template <class T>
using openssl_owner = std::unique_ptr<T, openssl_free>;

} // namespace troupe
