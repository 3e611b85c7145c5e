/// Describes what was restored with a world's epoch besides its ranks, and how long each part took.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/time.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The kinds of state that a world has besides its ranks.
enum class restored_kind : std::uint8_t {
  registration, ///< Memory that is registered again while the ranks form.
  plan,         ///< A plan that is captured again after the ranks have formed, while requests are served.
  sub_world,    ///< A sub-world, which recovers by itself, independently of its parent.
};
[[nodiscard]] std::string_view to_string(restored_kind kind) noexcept;

/// The progress of a restoration.
enum class restored_state : std::uint8_t {
  under_way, ///< Another event will report the result.
  back,
  lost, ///< It was not restored; see `failure`.
};
[[nodiscard]] std::string_view to_string(restored_state state) noexcept;

/// One restored or lost part.
struct restored_part {
  restored_kind kind{};
  /// Registrations: from 0, in the order of the requests. Plans: captured_plan::number(). Sub-worlds of this process:
  /// from 0, in the order of the splits.
  std::uint64_t number = 0;
  std::string name{}; ///< The group name of a sub-world; empty for other kinds.
  restored_state state = restored_state::under_way;
  /// Duration by the world's clock. Registrations and plans: from the start of the first rank to the end of the last.
  /// Sub-worlds: from the fault until it was ready or was given up. 0 while under way.
  nanoseconds took{};
  error failure{};
};

/// Registrations first, then plans, then sub-worlds in the order of their arrival.
using restoration = std::vector<restored_part>;

/// The totals of one kind.
struct restored_sum {
  std::size_t back = 0;
  std::size_t lost = 0;
  std::size_t under_way = 0;
  nanoseconds took{}; ///< Sum of the durations of all restored parts.
  nanoseconds slowest{};
};
[[nodiscard]] restored_sum sum_of(const restoration& all, restored_kind kind) noexcept;

/// Returns a text for people; empty if nothing was restored:
/// "1 registration in 0.2 ms, 3 plans in 1.5 ms (the slowest in 0.9 ms), 1 plan not (internal: …), sub-world left in
/// 40.2 ms".
[[nodiscard]] std::string describe(const restoration& all);

/// Formats \p span as "12.3 ms".
[[nodiscard]] std::string in_tenths_of_milliseconds(nanoseconds span);

} // namespace troupe
