#include <troupe/processes/transport/frame_cipher.hpp>

#include <troupe/device/error.hpp>

#include <openssl/evp.h>

#include <array>
#include <limits>

namespace troupe {

namespace {

constexpr std::size_t nonce_bytes = 12;

void require(int result) {
  if (result != 1) throw exception{errc::internal, "OpenSSL could not encrypt or decrypt a message with AES-256-GCM"};
}

unsigned char* bytes_of(std::string& text) noexcept {
  return reinterpret_cast<unsigned char*>(text.data());
}

} // namespace

frame_cipher::frame_cipher(const join_digest& key) : context_{EVP_CIPHER_CTX_new()} {
  if (!context_) throw exception{errc::out_of_memory, "there is no memory for a cipher"};
  require(EVP_CipherInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr, key.data(), nullptr, 1));
}

void frame_cipher::begin(bool is_sealing) {
  std::array<unsigned char, nonce_bytes> nonce{};
  for (std::size_t i = 0; i < sizeof count_; ++i)
    nonce.at(nonce_bytes - 1 - i) = static_cast<unsigned char>(count_ >> (8 * i));
  ++count_;
  require(EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data(), is_sealing ? 1 : 0));
}

std::string frame_cipher::seal(std::string_view message) {
  begin(true);
  std::string sealed(message.size() + overhead_bytes, '\0');
  int length = 0;
  require(EVP_CipherUpdate(context_.get(), bytes_of(sealed), &length,
                           reinterpret_cast<const unsigned char*>(message.data()), static_cast<int>(message.size())));
  require(EVP_CipherFinal_ex(context_.get(), bytes_of(sealed) + length, &length));
  require(
      EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, overhead_bytes, bytes_of(sealed) + message.size()));
  return sealed;
}

bool frame_cipher::open(std::string& sealed) {
  if (sealed.size() < overhead_bytes || sealed.size() > std::numeric_limits<int>::max()) return false;
  begin(false);
  const std::size_t size = sealed.size() - overhead_bytes;
  int length = 0;
  require(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, overhead_bytes, bytes_of(sealed) + size));
  require(EVP_CipherUpdate(context_.get(), bytes_of(sealed), &length, bytes_of(sealed), static_cast<int>(size)));
  const bool is_genuine = EVP_CipherFinal_ex(context_.get(), bytes_of(sealed) + length, &length) == 1;
  sealed.resize(is_genuine ? size : 0);
  return is_genuine;
}

} // namespace troupe
