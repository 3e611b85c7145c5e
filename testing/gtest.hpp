/// Defines the matchers of matchers.hpp for GoogleTest, EXPECT_THAT(world.barrier().share(), succeeds()) and
/// EXPECT_THAT(script.launches(rank{0}), ElementsAre(AllOf(is_launch("barrier"), asked_of_world()))), and how
/// GoogleTest prints troupe's values: in words. Needs GoogleTest 1.12 or later with its GMock; troupe itself does not
/// need them.
///
/// Include it in each test file that compares troupe's values, or GoogleTest prints their bytes. A using directive for
/// troupe makes the name of GoogleTest's namespace ambiguous, because there is a troupe::testing, too: qualify it.
#pragma once

#include <troupe/testing/matchers.hpp>

#include <gmock/gmock-matchers.h>

#include <ostream>
#include <string>

namespace troupe::testing {

/// The values that GoogleTest prints in words: those for which there is a describe() or a to_string().
template <class Value>
concept described = requires(const Value& value) {
  describe(value);
};
template <class Value>
concept has_words = described<Value> || requires(const Value& value) {
  to_string(value);
};

/// Returns \p value in words.
template <has_words Value>
[[nodiscard]] std::string words_of(const Value& value) {
  if constexpr (described<Value>)
    return describe(value);
  else
    return std::string{to_string(value)};
}

} // namespace troupe::testing

namespace troupe {

/// Called by GoogleTest, which finds it by its argument. It is not an operator <<, because tests could then stream
/// values that programs cannot.
template <testing::has_words Value>
void PrintTo(const Value& value, std::ostream* out) {
  *out << testing::words_of(value);
}

namespace testing {
using troupe::PrintTo;
} // namespace testing

} // namespace troupe
