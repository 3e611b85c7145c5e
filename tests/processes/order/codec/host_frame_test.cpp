// The messages between the controller and the order service of another host: they come back as they were written, and
// what nobody wrote is refused.
#include <troupe/collectives/order/codec/report_codec.hpp>
#include <troupe/processes/order/codec/host_frame.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <memory>
#include <string>

namespace troupe::tests::host_frame_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

host_frame read(std::string_view bytes, int world_size = 3) {
  error why;
  host_frame made = decode_host_frame(bytes, world_size, why);
  INFO(why.text);
  REQUIRE_FALSE(why);
  return made;
}

error refusal(std::string_view bytes, int world_size = 3) {
  error why;
  static_cast<void>(decode_host_frame(bytes, world_size, why));
  return why;
}

std::shared_ptr<absence_report> report(std::string what, std::size_t ranks = 2) {
  auto made = std::make_shared<absence_report>();
  made->what = std::move(what);
  made->waited = 3ms;
  for (std::size_t r = 0; r < ranks; ++r)
    made->ranks.push_back({.rank = rank{static_cast<int>(r)}, .participates = true});
  return made;
}

host_frame some_frame() {
  host_frame frame;
  frame.is_complete = false;
  frame.closed = {.code = errc::rebuilding, .text = "the epoch ends"};
  frame.batches = {{rank{0}, "first"}, {rank{2}, ""}};
  frame.losses = {{rank{1}, {.code = errc::rank_lost, .text = "killed", .rank = rank{1}}}};
  frame.reports = {report("barrier"), report("all_reduce")};
  return frame;
}

} // namespace

TEST_CASE("a message between services comes back as it was written", "[collectives][wire][hosts]") {
  const host_frame one = read(encode(some_frame()));
  CHECK_FALSE(one.is_complete);
  CHECK(one.closed.code == errc::rebuilding);
  CHECK(one.closed.text == "the epoch ends");
  REQUIRE(one.batches.size() == 2);
  CHECK(one.batches[0].of == rank{0});
  CHECK(one.batches[0].bytes == "first");
  CHECK(one.batches[1].of == rank{2});
  CHECK(one.batches[1].bytes.empty());
  REQUIRE(one.losses.size() == 1);
  CHECK(one.losses[0].of == rank{1});
  CHECK(one.losses[0].why.code == errc::rank_lost);
  CHECK(one.losses[0].why.text == "killed");
  REQUIRE(one.reports.size() == 2);
  CHECK(one.reports[0]->what == "barrier");
  CHECK(one.reports[1]->what == "all_reduce");
  CHECK(one.reports[1]->waited == 3ms);
  CHECK(one.reports[1]->ranks.size() == 2);
  const host_frame empty = read(encode(host_frame{}));
  CHECK(empty.empty());
  CHECK(empty.is_complete);
  CHECK_FALSE(empty.closed);
}

TEST_CASE("a message between services may have many short parts", "[collectives][wire][hosts]") {
  host_frame frame;
  for (int i = 0; i < 20; ++i) frame.batches.push_back({rank{0}, ""});
  CHECK(read(encode(frame)).batches.size() == 20);
  frame = {};
  for (int i = 0; i < 20; ++i) frame.losses.push_back({rank{0}, {.code = errc::busy}});
  CHECK(read(encode(frame)).losses.size() == 20);
  frame = {};
  for (int i = 0; i < 20; ++i) frame.reports.push_back(std::make_shared<absence_report>());
  CHECK(read(encode(frame)).reports.size() == 20);
}

TEST_CASE("a report that is too long is left out of a message between services", "[collectives][wire][hosts]") {
  host_frame frame;
  frame.reports = {report("short"), report("long", 60'000), report("last")};
  for (const int world_size : {60'000}) {
    const host_frame one = read(encode(frame), world_size);
    REQUIRE(one.reports.size() == 2);
    CHECK(one.reports[0]->what == "short");
    CHECK(one.reports[1]->what == "last");
  }
}

TEST_CASE("a message between services that is cut, or names ranks that do not exist, is refused",
          "[collectives][wire][hosts][SEC-2]") {
  const std::string whole = encode(some_frame());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const error why = refusal(whole.substr(0, size));
    CHECK(why.code == errc::internal);
    CHECK_THAT(why.text, ContainsSubstring("a message between the controller and the order service of a host"));
  }
  CHECK_THAT(refusal(whole + 'x').text, ContainsSubstring("bytes follow its end"));
  std::string other = whole;
  other[0] = '\x7f';
  CHECK_THAT(refusal(other).text, ContainsSubstring("a flag is neither 0 nor 1"));
  CHECK_FALSE(refusal(encode({.batches = {{rank{2}, "x"}}})));
  CHECK_THAT(refusal(encode({.batches = {{rank{3}, "x"}}})).text, ContainsSubstring("a number is too large"));
  CHECK_FALSE(refusal(encode({.losses = {{rank{2}, {.code = errc::busy}}}})));
  CHECK_THAT(refusal(encode({.losses = {{rank{3}, {.code = errc::busy}}}})).text,
             ContainsSubstring("a number is too large"));
  CHECK_FALSE(refusal(encode({.batches = {{rank{0}, "x"}}}), 1));
  CHECK(refusal(encode({.batches = {{rank{1}, "x"}}}), 1));
  CHECK_FALSE(refusal(encode({.batches = {{rank{0}, "x"}}}), 0));
}

TEST_CASE("a message between services is not believed to have more parts than bytes", "[collectives][wire][hosts]") {
  const std::string empty = encode(host_frame{}); // two flags, and three numbers of parts
  REQUIRE(empty.size() == 5);
  const auto announced = [&](std::size_t at, char count, std::size_t bytes) {
    std::string one = empty.substr(0, at + 1);
    one[at] = count;
    return refusal(one + std::string(bytes, '\0')).text;
  };
  CHECK_THAT(announced(2, 5, 9), ContainsSubstring("it ends before all that it announces"));
  CHECK_THAT(announced(2, 5, 10), ContainsSubstring("it ends too early") || ContainsSubstring("ends within"));
  CHECK_THAT(announced(3, 5, 44), ContainsSubstring("it ends before all that it announces"));
  CHECK_THAT(announced(3, 5, 45), ContainsSubstring("an error has the code none"));
  CHECK_THAT(announced(4, 5, 9), ContainsSubstring("it ends before all that it announces"));
}

} // namespace troupe::tests::host_frame_test
