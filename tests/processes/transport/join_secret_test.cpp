/// The join token is proved, not sent, and its messages are of fixed sizes.
#include "support/transport/join_token_file.hpp"
#include "support/transport/transport_rig.hpp"

#include <troupe/device/error.hpp>
#include <troupe/processes/transport/join_handshake.hpp>

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
  return {.of_listener = fresh_nonce(),
          .of_dialer = fresh_nonce(),
          .channel = {},
          .version_of_listener = encode_version("1"),
          .version_of_dialer = encode_version("2")};
}

} // namespace

TEST_CASE("a token that is empty, short or too long is refused without being repeated", "[transport]") {
  CHECK(refusal_of_token("").find("empty") != std::string::npos);
  const std::string short_one = refusal_of_token("fifteen-chars-x");
  CHECK(short_one.find("15 characters") != std::string::npos);
  CHECK(short_one.find("fifteen") == std::string::npos);
  CHECK(refusal_of_token(std::string(1'025, 'x')).find("1025 characters") != std::string::npos);
  CHECK(refusal_of_token(std::string(16, 'x')).empty());
  CHECK(refusal_of_token(std::string(1'024, 'x')).empty());
}

TEST_CASE("a proof is of one token, one side and one occasion", "[transport]") {
  const join_secret secret{good_token};
  const join_secret other{bad_token};
  const handshake_transcript occasion = some_transcript();
  const join_digest proof = secret.proof(connection_side::dialer, occasion);
  CHECK(is_same(proof, join_secret{good_token}.proof(connection_side::dialer, occasion)));
  CHECK_FALSE(is_same(proof, other.proof(connection_side::dialer, occasion)));
  CHECK_FALSE(is_same(proof, secret.proof(connection_side::listener, occasion)));

  handshake_transcript later_one = occasion;
  later_one.of_listener[31] ^= 1U;
  CHECK_FALSE(is_same(proof, secret.proof(connection_side::dialer, later_one)));
  later_one = occasion;
  later_one.of_dialer[0] ^= 1U;
  CHECK_FALSE(is_same(proof, secret.proof(connection_side::dialer, later_one)));
  later_one = occasion;
  later_one.channel[5] ^= 1U;
  CHECK_FALSE(is_same(proof, secret.proof(connection_side::dialer, later_one)));
  later_one = occasion;
  later_one.version_of_listener = encode_version("1.1");
  CHECK_FALSE(is_same(proof, secret.proof(connection_side::dialer, later_one)));
  later_one = occasion;
  later_one.version_of_dialer = encode_version("2.1");
  CHECK_FALSE(is_same(proof, secret.proof(connection_side::dialer, later_one)));
  CHECK_FALSE(is_same(secret.proof(connection_side::listener, occasion, join_verdict::admitted),
                      secret.proof(connection_side::listener, occasion, join_verdict::other_version)));
}

TEST_CASE("the preamble's messages are read as they were written, and none of their heads may differ", "[transport]") {
  const join_nonce nonce = fresh_nonce();
  const join_digest proof = fresh_nonce();
  const join_version version = encode_version("0.2.0+dev~1-a");

  const std::string greeting = encode(join_greeting{nonce, version});
  const auto read_greeting = decode_greeting(parsed(greeting).value());
  REQUIRE(read_greeting);
  CHECK(read_greeting->nonce == nonce);
  CHECK(read_greeting->version == version);
  const std::string claim = encode(join_claim{nonce, version, proof});
  const auto read_claim = decode_claim(parsed(claim).value());
  REQUIRE(read_claim);
  CHECK(read_claim->nonce == nonce);
  CHECK(read_claim->version == version);
  CHECK(read_claim->proof == proof);
  for (const join_verdict verdict : {join_verdict::admitted, join_verdict::wrong_token, join_verdict::malformed,
                                     join_verdict::too_many, join_verdict::other_version}) {
    const auto read = decode_answer(parsed(encode(join_answer{.verdict = verdict, .proof = proof})).value());
    REQUIRE(read);
    CHECK(read->verdict == verdict);
    CHECK(read->proof == proof);
  }

  for (std::size_t i = 0; i < frame_header_bytes; ++i) {
    for (std::string other :
         {greeting, claim, encode(join_answer{.verdict = join_verdict::admitted, .proof = proof})}) {
      other[i] = static_cast<char>(other[i] ^ 0x40);
      CHECK_FALSE(parsed(other));
    }
  }
  std::string answer = encode(join_answer{.verdict = join_verdict::admitted, .proof = proof});
  for (std::size_t i = frame_header_bytes; i < frame_header_bytes + 4; ++i) { // the verdict and its zeros
    std::string other = answer;
    other[i] = static_cast<char>(other[i] ^ 0x40);
    CHECK_FALSE(decode_answer(parsed(other).value()));
  }
}

TEST_CASE("a version that others could not read is refused, and so is one that a peer made up", "[transport]") {
  for (const std::string& bad : {std::string{}, std::string(25, '1'), std::string{"1 2"}, std::string{"1\n"},
                                 std::string{"1\0", 2}, std::string{"%s"}})
    CHECK_THROWS_AS(encode_version(bad), exception);
  CHECK(encode_version(std::string(24, '1')).back() == '1');
  for (const std::string& bad : {std::string{}, std::string{"1\n"},
                                 std::string{"1\0"
                                             "2",
                                             3},
                                 std::string{"\x1b[2J"}}) {
    join_greeting greeting{.nonce = fresh_nonce()};
    std::copy(bad.begin(), bad.end(), greeting.version.begin());
    CHECK_FALSE(decode_greeting(parsed(encode(greeting)).value()));
    join_claim claim{.nonce = fresh_nonce(), .version = greeting.version};
    CHECK_FALSE(decode_claim(parsed(encode(claim)).value()));
  }
}

TEST_CASE("a token's file is read to the end of its first line, unless others may read it", "[transport]") {
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
