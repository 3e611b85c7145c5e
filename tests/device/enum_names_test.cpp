#include <troupe/device/enum_names.hpp>
#include <troupe/device/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

enum class size_of_tests : std::uint8_t { small, middle_sized, large };
enum class speed_of_tests : std::uint8_t { automatic, slow };
template <>
inline constexpr std::array<std::string_view, 2> enum_names<speed_of_tests>{"auto", "slow"};
struct settings_of_tests {
  enum class mode : std::uint8_t { off, on };
};

namespace tests::enum_names_test {
namespace {

std::string refusal(auto parse) {
  try {
    static_cast<void>(parse());
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::invalid_argument);
    return failure.why().text;
  }
  return "accepted";
}

TEST_CASE("the name of a value is its identifier", "[device]") {
  STATIC_CHECK(to_string(size_of_tests::small) == "small");
  STATIC_CHECK(to_string(size_of_tests::middle_sized) == "middle_sized");
  STATIC_CHECK(to_string(size_of_tests::large) == "large");
  STATIC_CHECK(to_string(settings_of_tests::mode::on) == "on");
  CHECK(listed(enum_names<size_of_tests>) == "small, middle_sized, large");
  CHECK(to_string(size_of_tests::small).data() == std::string{"small"}); // as a C string, too
}

TEST_CASE("an enumeration can have other names than its identifiers", "[device]") {
  STATIC_CHECK(to_string(speed_of_tests::automatic) == "auto");
  STATIC_CHECK(to_string(speed_of_tests::slow) == "slow");
  CHECK(parse_enum<speed_of_tests>("speed", "auto") == speed_of_tests::automatic);
  CHECK(refusal([] { return parse_enum<speed_of_tests>("speed", "automatic"); }) ==
        "unknown speed 'automatic': choose one of auto, slow");
}

TEST_CASE("a value that is no enumerator has no name", "[device]") {
  STATIC_CHECK(to_string(static_cast<size_of_tests>(3)).empty());
  STATIC_CHECK(to_string(static_cast<speed_of_tests>(255)).empty());
}

TEST_CASE("all values of an enumeration are known in their order", "[device]") {
  STATIC_CHECK(enum_values<size_of_tests> ==
               std::array{size_of_tests::small, size_of_tests::middle_sized, size_of_tests::large});
  STATIC_CHECK(enumerator_count<speed_of_tests>() == 2);
}

TEST_CASE("a name is parsed, and another text is refused with the choices", "[device]") {
  for (const size_of_tests one : enum_values<size_of_tests>)
    CHECK(parse_enum<size_of_tests>("size", to_string(one)) == one);
  for (const std::string_view text : {"", "Small", "small ", "middle"})
    CHECK(refusal([&] { return parse_enum<size_of_tests>("size", text); }) ==
          "unknown size '" + std::string{text} + "': choose one of small, middle_sized, large");
}

TEST_CASE("a choice of values is parsed in its own order", "[device]") {
  constexpr std::array choices{size_of_tests::large, size_of_tests::small};
  for (const size_of_tests one : choices) CHECK(parse_enum("size", to_string(one), choices) == one);
  CHECK(refusal([&] { return parse_enum("size", "middle_sized", choices); }) ==
        "unknown size 'middle_sized': choose one of large, small");
}

} // namespace
} // namespace tests::enum_names_test
} // namespace troupe
