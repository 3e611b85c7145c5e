// Resources that could not be released are reported to one place.
#include "support/at_its_end.hpp"

#include <troupe/device/memory/leak_report.hpp>

#include <catch2/catch_test_macros.hpp>

namespace troupe::tests {

TEST_CASE("objects of a replaced handler may report leaks when they end", "[device]") {
  const auto before = leak_count();
  int told = 0;
  on_leak(
      [owned = at_its_end([] { report_leak({.code = errc::internal, .text = "the test says so"}); })](const error&) {});
  on_leak([&](const error&) { ++told; });
  on_leak({});
  CHECK(leak_count() == before + 1);
  CHECK(told == 1);
}

} // namespace troupe::tests
