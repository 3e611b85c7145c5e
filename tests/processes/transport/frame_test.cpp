/// Frames are read in pieces of any size, and bounded by what has arrived.
#include "support/transport/loopback_client.hpp"

#include <troupe/processes/transport/frame.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <vector>

namespace troupe::tests::frame_test {

namespace {

std::string message(std::size_t payload_bytes) {
  return encode_frame(frame_kind::message, pattern(payload_bytes));
}

frame_parser parser_of_messages(std::uint32_t longest) {
  frame_parser made;
  made.accept_messages(longest);
  return made;
}

/// Passes \p all in pieces, and returns the frames; \p consumed counts the bytes that were.
std::vector<frame> read_in_pieces(frame_parser& parser, std::string_view all, std::size_t piece,
                                  std::size_t& consumed) {
  std::vector<frame> found;
  consumed = 0;
  for (std::size_t at = 0; at < all.size(); at += piece) {
    std::string_view rest = all.substr(at, piece);
    while (!rest.empty() && !parser.has_fault()) {
      std::optional<frame> complete;
      const std::size_t step = parser.receive(rest, complete);
      rest.remove_prefix(step);
      consumed += step;
      if (complete) found.push_back(std::move(*complete));
    }
  }
  return found;
}

} // namespace

TEST_CASE("whole frames of any size up to the bound pass, in pieces of any size", "[transport]") {
  std::string all;
  const std::vector<std::size_t> sizes{2, 1, 31, 100, 1};
  for (const std::size_t one : sizes) all += message(one);
  for (std::size_t piece = 1; piece <= all.size(); ++piece) {
    frame_parser parser = parser_of_messages(100);
    std::size_t consumed = 0;
    const auto found = read_in_pieces(parser, all, piece, consumed);
    CHECK(consumed == all.size());
    REQUIRE(found.size() == sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) CHECK(found[i].payload == pattern(sizes[i]));
    CHECK(parser.is_between_frames());
    CHECK_FALSE(parser.has_fault());
  }
}

TEST_CASE("a parser knows when it is inside a frame", "[transport]") {
  frame_parser parser = parser_of_messages(100);
  CHECK(parser.is_between_frames());
  const std::string one = message(2);
  for (std::size_t i = 0; i < one.size(); ++i) {
    std::optional<frame> complete;
    CHECK(parser.receive(std::string_view{one}.substr(i, 1), complete) == 1);
    CHECK(parser.is_between_frames() == (i + 1 == one.size()));
    CHECK(complete.has_value() == (i + 1 == one.size()));
  }
}

TEST_CASE("a frame longer than the bound stops at its length, and nothing passes after it", "[transport]") {
  const std::string all = message(100) + message(101);
  for (std::size_t piece = 1; piece <= all.size(); piece += 13) {
    frame_parser parser = parser_of_messages(100);
    std::size_t consumed = 0;
    CHECK(read_in_pieces(parser, all, piece, consumed).size() == 1);
    CHECK(consumed == message(100).size() + 7); // the byte that completes the length does not pass
    CHECK(parser.fault_text() == "sent a frame of 101 bytes, and the limit is 100");
  }
}

TEST_CASE("the longest length that the format has is no more than a long one", "[transport]") {
  const std::string head{"TR\x02\x04\xff\xff\xff\xff", 8};
  std::optional<frame> complete;
  frame_parser parser = parser_of_messages(~0U);
  CHECK(parser.receive(head, complete) == head.size()); // a frame may be that long where nobody bounds it
  frame_parser bounded = parser_of_messages(16U << 20U);
  CHECK(bounded.receive(head, complete) == 7);
  CHECK(bounded.fault_text() == "sent a frame of 4294967295 bytes, and the limit is 16777216");
}

TEST_CASE("bytes that are not a frame are refused at the first that is wrong", "[transport]") {
  const struct {
    std::string bytes;
    std::size_t passed;
    const char* text;
  } cases[]{
      {"GET / HTTP/1.1", 0, "sent something that is not a frame of troupe"},
      {"TXXX", 1, "sent something that is not a frame of troupe"},
      {std::string{"TR\x01\x04", 4}, 2, "sent something that is not a frame of troupe"},
      {std::string{"TR\x02\x05", 4}, 3, "sent a frame of a kind that is not allowed here"},
      {std::string{"TR\x02\x01", 4}, 3, "sent a frame of a kind that is not allowed here"}, // a greeting, too late
      {std::string{"TR\x02\x04\0\0\0\0", 8}, 7, "sent a frame without its payload"},
  };
  for (const auto& one : cases) {
    frame_parser parser = parser_of_messages(100);
    std::optional<frame> complete;
    CHECK(parser.receive(one.bytes, complete) == one.passed);
    CHECK_FALSE(complete);
    CHECK(parser.fault_text() == one.text);
    CHECK(parser.receive("TR", complete) == 0);
  }
}

TEST_CASE("SEC-2: before a peer is admitted only the preamble's frames pass, each of its own length", "[transport]") {
  for (const auto& [kind, length] :
       {std::pair{frame_kind::greeting, join_greeting_bytes}, std::pair{frame_kind::claim, join_claim_bytes},
        std::pair{frame_kind::answer, join_answer_bytes}}) {
    for (const std::size_t payload : {length - 1, length, length + 1}) {
      frame_parser parser;
      std::size_t consumed = 0;
      const std::string whole = encode_frame(kind, pattern(payload));
      const auto found = read_in_pieces(parser, whole, whole.size(), consumed);
      CHECK(found.size() == (payload == length ? 1 : 0));
      CHECK(parser.has_fault() == (payload != length));
    }
  }
  frame_parser parser;
  std::optional<frame> complete;
  CHECK(parser.receive(message(1), complete) == 3);
  CHECK(parser.has_fault());
}

} // namespace troupe::tests::frame_test
