// What a conformance run looks at after an operation: each planted fault is found, and named for what it is.
#include "support/runtimes.hpp"

#include <troupe/program/conform/conform_image.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_container_properties.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstring>

namespace troupe::tests::conform_image_test {

namespace {

using namespace program;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;

constexpr std::size_t count = 100;

/// One range of a rank: the first 40 elements of a result, then 20 of its own input, then 40 that nobody writes.
struct image_rig {
  explicit image_rig(dtype type_of_elements, std::size_t shift = 0)
    : type{type_of_elements},
      values{std::make_shared<reference_values>(type, reduction::sum, 2, 1, value_kind::full)},
      image{where, rank{1}, memory_kind::device, 1U << 16U} {
    conform_range range{.owner = 1,
                        .role = "recv",
                        .values = {type, reduction::sum, value_kind::full},
                        .count = count,
                        .shift = shift,
                        .before = {{.first = 40, .count = 20, .from = 1, .from_first = 7}},
                        .after = {{.first = 0, .count = 40, .from_first = 3}}};
    image.place(range, values); // neighbours
    middle = image.place(range, values);
    image.place(std::move(range), values);
    where.ask(rank{1}, image.upload()).get();
  }

  /// The device's memory, which on the mock the test can reach.
  [[nodiscard]] std::byte* element(std::ptrdiff_t index) const {
    return image.memory_of(middle).data() + index * static_cast<std::ptrdiff_t>(size_bytes(type));
  }
  void write_result() const {
    for (const std::size_t number : {middle - 1, middle, middle + 1})
      values->fill({}, 3, {image.memory_of(number).data(), 40 * size_bytes(type)});
  }
  [[nodiscard]] std::string fault() {
    where.ask(rank{1}, image.download()).get();
    CHECK(image.find_fault(middle - 1).empty());
    CHECK(image.find_fault(middle + 1).empty());
    return image.find_fault(middle);
  }

  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  dtype type;
  std::shared_ptr<reference_values> values;
  conform_image image;
  std::size_t middle = 0;
};

void flip(std::byte* at) {
  *at ^= std::byte{0x5A};
}

} // namespace

TEST_CASE("a right result is found right, wherever it begins", "[conform]") {
  image_rig rig{GENERATE(from_range(all_dtypes)), GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{7})};
  rig.write_result();
  CHECK_THAT(rig.fault(), IsEmpty());
}

TEST_CASE("a range begins where it was asked to", "[conform]") {
  const image_rig rig{dtype::f16, 3};
  CHECK(reinterpret_cast<std::uintptr_t>(rig.element(0)) % 256 == 3 * size_bytes(rig.type));
}

TEST_CASE("a wrong element is found, with its place and what it should be", "[conform]") {
  image_rig rig{dtype::u8};
  rig.write_result();
  const std::byte right = *rig.element(39);
  flip(rig.element(39));
  const auto number = [](std::byte value) { return std::to_string(std::to_integer<int>(value)); };
  const std::string fault = rig.fault();
  CHECK_THAT(fault, ContainsSubstring("rank 1, recv: element 39 of 100: expected " + number(right) + " (") &&
                        ContainsSubstring(", seen " + number(*rig.element(39))));
}

TEST_CASE("several wrong elements are counted", "[conform]") {
  image_rig rig{dtype::f64};
  rig.write_result();
  flip(rig.element(12));
  flip(rig.element(30));
  CHECK_THAT(rig.fault(), ContainsSubstring("element 12 of 100") && ContainsSubstring("; 2 elements are wrong"));
}

TEST_CASE("an element that was not written is found for every dtype", "[conform]") {
  image_rig rig{GENERATE(from_range(all_dtypes))};
  CAPTURE(to_string(rig.type));
  std::vector<std::byte> poison(size_bytes(rig.type));
  std::memcpy(poison.data(), rig.element(20), poison.size());
  rig.write_result();
  std::memcpy(rig.element(20), poison.data(), poison.size());
  CHECK_THAT(rig.fault(), ContainsSubstring("element 20 of 100 was not written: expected "));
}

TEST_CASE("no poison is a right result", "[conform]") {
  image_rig rig{GENERATE(from_range(all_dtypes))};
  rig.where.ask(rank{1}, rig.image.download()).get();
  CHECK_THAT(rig.image.find_fault(rig.middle), ContainsSubstring("; 40 elements are wrong"));
}

TEST_CASE("a byte in a guard zone is found", "[conform]") {
  image_rig rig{dtype::i32, 1};
  rig.write_result();
  SECTION("before the range") {
    const std::size_t distance = GENERATE(std::size_t{1}, std::size_t{4}, std::size_t{200});
    flip(rig.element(0) - distance);
    CHECK_THAT(rig.fault(), ContainsSubstring("the guard zone was written to, " + std::to_string(distance) +
                                              " bytes before its front"));
  }
  SECTION("behind it") {
    const std::size_t distance = GENERATE(std::size_t{0}, std::size_t{15}, std::size_t{250});
    flip(rig.element(count) + distance);
    CHECK_THAT(rig.fault(), ContainsSubstring("the guard zone was written to, " + std::to_string(distance) +
                                              " bytes behind its end"));
  }
}

TEST_CASE("an input that was changed is found, and so is a gap that was written", "[conform]") {
  image_rig rig{dtype::bf16};
  rig.write_result();
  const std::ptrdiff_t at = GENERATE(40, 59, 60, 99);
  flip(rig.element(at));
  CHECK_THAT(rig.fault(), ContainsSubstring("element " + std::to_string(at) +
                                            " of 100 was written to, but is not part of a result"));
}

TEST_CASE("a rounded mean is right, in the words of the bound", "[conform]") {
  runtime rt{mock_settings(3)};
  world where = rt.form_world();
  const auto values = std::make_shared<reference_values>(dtype::f32, reduction::avg, 3, 1, value_kind::exact);
  conform_image image{where, rank{0}, memory_kind::device, 1U << 16U};
  const std::size_t number = image.place({.owner = 0,
                                          .role = "recv",
                                          .values = {dtype::f32, reduction::avg, value_kind::exact},
                                          .count = count,
                                          .after = {{.first = 0, .count = count}}},
                                         values);
  where.ask(rank{0}, image.upload()).get();
  std::vector<float> result(count);
  values->fill({}, 0, std::as_writable_bytes(std::span{result}));
  const auto fault_of_results_times = [&](float change) {
    std::vector<float> seen = result;
    for (float& one : seen) one *= change;
    std::memcpy(image.memory_of(number).data(), seen.data(), count * sizeof(float));
    where.ask(rank{0}, image.download()).get();
    return image.find_fault(number);
  };
  CHECK_THAT(fault_of_results_times(1 + 1e-7F), IsEmpty());
  CHECK_THAT(fault_of_results_times(1 + 1e-5F), ContainsSubstring("elements are wrong"));
}

} // namespace troupe::tests::conform_image_test
