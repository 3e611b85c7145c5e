/// The join token is proved, not sent, and its messages are of fixed sizes.
#include "support/proxy/proxy_rig.hpp"

#include <troupe/actors/transport/preamble.hpp>
#include <troupe/device/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <string>

namespace troupe::tests::join_secret_test {

namespace {

std::string refusal_of_token(const std::string& token) {
  try {
    const join_secret secret{token};
    return {};
  } catch (const exception& why) {
    CHECK(why.why().code == errc::invalid_argument);
    return why.why().text;
  }
}

handshake_transcript some_transcript() {
  return {.of_listener = fresh_nonce(), .of_dialer = fresh_nonce(), .channel = {}};
}

} // namespace

TEST_CASE("a token that is empty, short or too long is refused without being repeated", "[guard]") {
  CHECK(refusal_of_token("").find("empty") != std::string::npos);
  const std::string short_one = refusal_of_token("fifteen-chars-x");
  CHECK(short_one.find("15 characters") != std::string::npos);
  CHECK(short_one.find("fifteen") == std::string::npos);
  CHECK(refusal_of_token(std::string(1'025, 'x')).find("1025 characters") != std::string::npos);
  CHECK(refusal_of_token(std::string(16, 'x')).empty());
  CHECK(refusal_of_token(std::string(1'024, 'x')).empty());
}

TEST_CASE("a proof is of one token, one side and one occasion", "[guard]") {
  const join_secret secret{good_token};
  const join_secret other{bad_token};
  const handshake_transcript occasion = some_transcript();
  const join_digest proof = secret.proof(proxy_side::dialer, occasion);
  CHECK(is_same(proof, join_secret{good_token}.proof(proxy_side::dialer, occasion)));
  CHECK_FALSE(is_same(proof, other.proof(proxy_side::dialer, occasion)));
  CHECK_FALSE(is_same(proof, secret.proof(proxy_side::listener, occasion)));

  handshake_transcript later_one = occasion;
  later_one.of_listener[31] ^= 1u;
  CHECK_FALSE(is_same(proof, secret.proof(proxy_side::dialer, later_one)));
  later_one = occasion;
  later_one.of_dialer[0] ^= 1u;
  CHECK_FALSE(is_same(proof, secret.proof(proxy_side::dialer, later_one)));
  later_one = occasion;
  later_one.channel[5] ^= 1u;
  CHECK_FALSE(is_same(proof, secret.proof(proxy_side::dialer, later_one)));
}

TEST_CASE("the preamble's messages are read as they were written, and none of their heads may differ", "[guard]") {
  const join_nonce nonce = fresh_nonce();
  const join_digest proof = fresh_nonce();

  auto greeting = encode_greeting(nonce);
  CHECK(decode_greeting(greeting) == nonce);
  auto claim = encode(join_claim{nonce, proof});
  REQUIRE(decode_claim(claim));
  CHECK(decode_claim(claim)->nonce == nonce);
  CHECK(decode_claim(claim)->proof == proof);
  for (const join_verdict verdict : {join_verdict::admitted, join_verdict::wrong_token, join_verdict::malformed,
                                     join_verdict::too_many, join_verdict::unreachable}) {
    const auto answer = encode(join_answer{verdict, proof});
    REQUIRE(decode_answer(answer));
    CHECK(decode_answer(answer)->verdict == verdict);
    CHECK(decode_answer(answer)->proof == proof);
  }

  for (std::size_t i = 0; i < 8; ++i) {
    auto other_greeting = greeting;
    other_greeting[i] ^= 0x40u;
    CHECK_FALSE(decode_greeting(other_greeting));
    auto other_claim = claim;
    other_claim[i] ^= 0x40u;
    CHECK_FALSE(decode_claim(other_claim));
    auto other_answer = encode(join_answer{join_verdict::admitted, proof});
    other_answer[i] ^= 0x40u;
    CHECK_FALSE(decode_answer(other_answer));
  }
}

TEST_CASE("a token's file is read to the end of its first line, unless others may read it", "[guard]") {
  const scratch_folder folder;
  const auto file = folder.write("join.token", good_token + "\nmore\n");
  CHECK(read_join_token(file) == good_token);
  CHECK(read_join_token(folder.write("windows.token", good_token + "\r\n")) == good_token);

  std::filesystem::permissions(file, std::filesystem::perms::group_read, std::filesystem::perm_options::add);
  for (const auto& bad : {file, folder.path() / "none", folder.path(), folder.write("long", std::string(1'025, 'x'))}) {
    try {
      static_cast<void>(read_join_token(bad));
      FAIL("it was read");
    } catch (const exception& why) {
      CHECK(why.why().text.find(bad.string()) != std::string::npos);
      CHECK(why.why().text.find(good_token) == std::string::npos);
    }
  }
}

} // namespace troupe::tests::join_secret_test
