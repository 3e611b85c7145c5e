/// Properties as Catch2 test cases. RapidCheck draws the cases, prints its seed, shrinks what fails and says how to
/// repeat it; RC_PARAMS is honoured (docs/testing.md).
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <rapidcheck.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>

namespace troupe::tests {

/// Holds \p testable, a callable that draws its case, against as many cases as RC_PARAMS says (max_success, 100), times
/// \p share: a property that takes long is held against fewer.
template <class Testable>
void check_property(const std::string& name, Testable&& testable, double share = 1) {
  const rc::detail::Configuration& settings = rc::detail::configuration(); // prints the seed at the first call
  rc::detail::TestParams limits = settings.testParams;
  limits.maxSuccess = std::max(1, static_cast<int>(share * limits.maxSuccess));
  const rc::detail::TestMetadata about{.id = name, .description = name};
  const auto result = rc::detail::checkTestable(std::forward<Testable>(testable), about, limits);
  std::ostringstream said;
  rc::detail::printResultMessage(result, said);
  said << "\nseed " << limits.seed;
  INFO(said.str());
  CHECK(result.template is<rc::detail::SuccessResult>());
}

} // namespace troupe::tests
