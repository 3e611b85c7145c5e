/// Defines the matchers of matchers.hpp for Catch2, CHECK_THAT(world.barrier(), succeeds()) and
/// CHECK_THAT(script.launches(rank{0}), are_launches(is_launch("barrier") && asked_of_world())), and how Catch2 prints
/// what they match. Needs Catch2 3.4 or later; troupe itself does not need Catch2.
#pragma once

#include <troupe/testing/matchers.hpp>

#include <catch2/catch_tostring.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include <concepts>
#include <future>
#include <string>

namespace troupe::testing {

/// The values that Catch2 prints with describe().
template <class Value>
concept printed_by_catch2 = std::same_as<Value, outcome> || std::same_as<Value, completion> ||
    std::same_as<Value, launch_record> || std::same_as<Value, virtual_reply> ||
    std::same_as<Value, std::future<completion>> || std::same_as<Value, std::shared_future<completion>>;

} // namespace troupe::testing

/// \cond
template <troupe::testing::printed_by_catch2 Value>
struct Catch::StringMaker<Value> {
  static std::string convert(const Value& value) { return troupe::testing::describe(value); }
};
/// \endcond
