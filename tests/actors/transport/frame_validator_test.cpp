/// The heads of frames are read before CAF reads them.
#include "support/proxy/loopback_peers.hpp"

#include <troupe/actors/transport/proxy_splice.hpp>

#include <catch2/catch_test_macros.hpp>

namespace troupe::tests::frame_validator_test {

TEST_CASE("whole frames of any size up to the bound pass, in pieces of any size", "[guard]") {
  bytes all;
  for (const std::uint32_t payload : {2u, 1u, 31u, 100u, 1u}) {
    const bytes one = basp_frame(payload);
    all.insert(all.end(), one.begin(), one.end());
  }
  for (std::size_t piece = 1; piece <= all.size(); ++piece) {
    frame_validator meter{100};
    for (std::size_t at = 0; at < all.size(); at += piece) {
      const std::size_t length = std::min(piece, all.size() - at);
      REQUIRE(meter.pass(std::span{all}.subspan(at, length)) == length);
    }
    CHECK(meter.is_between_frames());
    CHECK_FALSE(meter.has_fault());
  }
}

TEST_CASE("a meter knows when it is inside a frame", "[guard]") {
  frame_validator meter{100};
  CHECK(meter.is_between_frames());
  const bytes one = basp_frame(2);
  for (std::size_t i = 0; i < one.size(); ++i) {
    CHECK(meter.pass(std::span{one}.subspan(i, 1)) == 1);
    CHECK(meter.is_between_frames() == (i + 1 == one.size()));
  }
}

TEST_CASE("a frame longer than the bound stops at its length, and nothing passes after it", "[guard]") {
  bytes all = basp_frame(100);
  const std::size_t good = all.size();
  const bytes long_one = basp_frame(101);
  all.insert(all.end(), long_one.begin(), long_one.end());
  for (std::size_t piece = 1; piece <= all.size(); piece += 13) {
    frame_validator meter{100};
    std::size_t passed = 0;
    for (std::size_t at = 0; at < all.size(); at += piece)
      passed += meter.pass(std::span{all}.subspan(at, std::min(piece, all.size() - at)));
    CHECK(passed == good + 7); // the byte that completes the length does not pass
    CHECK(meter.has_fault());
    CHECK(meter.fault_text() == "sent a frame of 101 bytes, and the limit is 100");
  }
}

TEST_CASE("the longest length that the format has is no more than a long one", "[guard]") {
  frame_validator meter{~0u};
  const bytes head{2, 0, 0, 0, 0xff, 0xff, 0xff, 0xff};
  CHECK(meter.pass(head) == head.size()); // a frame may be that long where nobody bounds it
  frame_validator bounded{16u << 20u};
  CHECK(bounded.pass(head) == 7);
  CHECK(bounded.fault_text() == "sent a frame of 4294967295 bytes, and the limit is 16777216");
}

TEST_CASE("an operation that BASP does not have is no frame", "[guard]") {
  frame_validator meter{100};
  const bytes head{7};
  CHECK(meter.pass(head) == 0);
  CHECK(meter.fault_text() == "sent something that is not a BASP frame, or a routed frame");
  CHECK(meter.pass(basp_frame(1)) == 0);
}

TEST_CASE("what CAF would stumble over does not come to it", "[guard]") {
  const auto fault_of = [](std::uint8_t kind, std::uint32_t payload_bytes, std::uint8_t message_kind = 0x10) {
    frame_validator meter{100};
    bytes frame = basp_frame(payload_bytes);
    frame[0] = kind;
    frame[8] = message_kind;
    if (meter.pass(frame) == frame.size()) return std::string{};
    return meter.fault_text();
  };
  for (const std::uint8_t kind : bytes{0, 1, 2, 4, 5}) {
    CHECK(fault_of(kind, 1).empty());
    CHECK(fault_of(kind, 0) == "sent a frame without its payload"); // a handshake without one ends CAF's process
  }
  CHECK(fault_of(frame_validator::heartbeat, 0).empty());
  CHECK(fault_of(frame_validator::heartbeat, 1) == "sent a heartbeat that has a payload");
  for (const std::uint8_t kind : bytes{0x00, 0x10, 0x50, 0x90})
    CHECK(fault_of(frame_validator::direct_message, 1, kind).empty());
  for (const std::uint8_t kind : bytes{0x20, 0x30, 0xb1})
    CHECK(fault_of(frame_validator::direct_message, 1, kind) == "sent a message of a stream");
  CHECK(fault_of(frame_validator::routed_message, 1) == "sent something that is not a BASP frame, or a routed frame");
}

} // namespace troupe::tests::frame_validator_test
