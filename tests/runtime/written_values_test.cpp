/// Values as people write them: sizes, durations, whole numbers.

#include "support/settings_sources.hpp"

#include <troupe/runtime/configuration/user_input.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <cstdint>
#include <limits>

namespace troupe::tests {

using namespace std::chrono_literals;

TEST_CASE("a duration is a whole number with a unit", "[runtime]") {
  CHECK(parse_duration("30s") == 30s);
  CHECK(parse_duration("250ms") == 250ms);
  CHECK(parse_duration("20us") == 20us);
  CHECK(parse_duration("7ns") == 7ns);
  CHECK(parse_duration("10min") == 10min);
  CHECK(parse_duration("0s") == 0s);
  CHECK(parse_duration("9223372036854775807ns") == std::chrono::nanoseconds::max());
}

TEST_CASE("a duration without a unit is refused with what to write", "[runtime]") {
  CHECK(refusal_of([] { static_cast<void>(parse_duration("30")); }) ==
        "'30' has no unit: write 30s, 30ms, 30us or 30ns");
  CHECK(refusal_of([] { static_cast<void>(parse_duration("0")); }).starts_with("'0' has no unit"));
}

TEST_CASE("text that is not a duration is refused", "[runtime]") {
  for (const char* text :
       {"", "s", "1.5s", "-1s", "+1s", "1 s", "1S", "1h", "1sec", "s1", "1s ", "1ms2us", "99999999999999999999s"}) {
    INFO(text);
    CHECK(
        says(refusal_of([&] { static_cast<void>(parse_duration(text)); }), "is not a duration: write a whole number"));
  }
  CHECK(says(refusal_of([] { static_cast<void>(parse_duration("9223372036855s")); }), "is too long"));
  CHECK(says(refusal_of([] { static_cast<void>(parse_duration("9223372036854775808ns")); }), "is too long"));
}

TEST_CASE("a duration is printed in the largest unit that divides it, and reads back", "[runtime]") {
  CHECK(format_duration(60s) == "60s");
  CHECK(format_duration(1500ms) == "1500ms");
  CHECK(format_duration(20us) == "20us");
  CHECK(format_duration(1001ns) == "1001ns");
  for (const std::chrono::nanoseconds span :
       {0ns, 1ns, 999ns, 1'000ns, 1'000'001ns, 3'600'000'000'000ns, std::chrono::nanoseconds::max()})
    CHECK(parse_duration(format_duration(span)) == span);
}

TEST_CASE("a size is a whole number of bytes, of K, of M or of G", "[runtime]") {
  CHECK(parse_byte_size("0") == 0);
  CHECK(parse_byte_size("1023") == 1023);
  CHECK(parse_byte_size("32K") == 32U << 10U);
  CHECK(parse_byte_size("256m") == 256U << 20U);
  CHECK(parse_byte_size("1G") == std::size_t{1} << 30U);
  for (const char* text :
       {"", "G", "1T", "1.5G", "-1", "1 G", "1GG", "1GiB", "x", "17179869184G", "18446744073709551616"}) {
    INFO(text);
    CHECK(says(refusal_of([&] { static_cast<void>(parse_byte_size(text)); }), "is not a size: write a whole number"));
  }
}

TEST_CASE("a size is printed in the largest unit that divides it, and reads back", "[runtime]") {
  CHECK(format_byte_size(0) == "0");
  CHECK(format_byte_size(std::size_t{3} << 30U) == "3G");
  CHECK(format_byte_size(1025) == "1025");
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{1024}, std::size_t{1536} << 10U,
                                 std::numeric_limits<std::size_t>::max()})
    CHECK(parse_byte_size(format_byte_size(size)) == size);
}

TEST_CASE("a whole number is all of the text or none of it", "[runtime]") {
  CHECK(parse_whole_number("18446744073709551615") == std::numeric_limits<std::uint64_t>::max());
  for (const char* text : {"", "-1", "+1", " 1", "1 ", "1x", "0x1", "1.0", "18446744073709551616"}) {
    INFO(text);
    CHECK_FALSE(parse_whole_number(text));
  }
}

} // namespace troupe::tests
