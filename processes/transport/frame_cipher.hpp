/// Encrypts and authenticates the messages of a connection without TLS.
#pragma once

#include <troupe/processes/transport/join_secret.hpp>
#include <troupe/processes/transport/openssl_owner.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// One direction of a connection: AES-256-GCM with a key that both sides derive from the join token and both nonces of
/// the preamble, and with the number of the message as the nonce. So another process of the machine that relays the
/// connection can neither read, change, repeat, reorder nor insert messages. Threads: one.
class frame_cipher {
public:
  static constexpr std::size_t overhead_bytes = 16; ///< A sealed message is longer by this.

  /// \p key: join_secret::message_key(). Used for one direction of one connection only. Errors: out_of_memory,
  /// internal.
  explicit frame_cipher(const join_digest& key);

  /// Returns the next message, sealed. Errors: internal, if OpenSSL fails.
  [[nodiscard]] std::string seal(std::string_view message);
  /// Replaces \p sealed, the next message of the other side, by its contents. Returns false if it is not what the other
  /// side has sealed: nothing more can be opened then.
  [[nodiscard]] bool open(std::string& sealed);

private:
  void begin(bool is_sealing);

  openssl_owner<evp_cipher_ctx_st> context_;
  std::uint64_t count_ = 0; ///< Number of messages so far.
};

} // namespace troupe
