/// Lines out of pieces.

#include <troupe/processes/launch/process_supervisor.hpp>

#include <catch2/catch_test_macros.hpp>

#include <vector>

namespace troupe::tests {

namespace {

/// The lines of \p text when it comes in pieces of \p piece bytes.
std::vector<std::string> lines_of(std::string_view text, std::size_t piece, std::size_t limit) {
  launch::line_splitter splitter{limit};
  std::vector<std::string> lines;
  const auto keep = [&](std::string_view line) { lines.emplace_back(line); };
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) splitter.feed(text.substr(0, piece), keep);
  splitter.finish(keep);
  return lines;
}

} // namespace

TEST_CASE("lines come out whole, whatever pieces they come in", "[launch]") {
  for (std::size_t piece = 1; piece < 12; ++piece) {
    CAPTURE(piece);
    CHECK(lines_of("one\n\ntwo\r\nlast", piece, 64) == std::vector<std::string>{"one", "", "two\r", "last"});
    CHECK(lines_of("\n", piece, 64) == std::vector<std::string>{""});
    CHECK(lines_of("", piece, 64).empty());
  }
}

TEST_CASE("a line longer than the limit comes out in several, and one of just that length in one", "[launch]") {
  for (std::size_t piece = 1; piece < 12; ++piece) {
    CAPTURE(piece);
    CHECK(lines_of("1234\n5678", piece, 4) == std::vector<std::string>{"1234", "5678"});
    CHECK(lines_of("123456789\nab\n", piece, 4) == std::vector<std::string>{"1234", "5678", "9", "ab"});
  }
}

} // namespace troupe::tests
