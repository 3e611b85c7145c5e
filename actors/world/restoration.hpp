/// What came back with a world's epoch beside its ranks, and how long each took.
#pragma once

#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// What belongs to a world beside its ranks.
enum class restored_kind : std::uint8_t {
  registration, ///< Memory that is registered again, while the ranks form.
  plan,         ///< Captured again, once they have formed; requests are served meanwhile.
  sub_world,    ///< Comes back by itself, by a recovery of its own, whatever its parent does.
};
[[nodiscard]] std::string_view to_string(restored_kind kind) noexcept;

/// How far its return is.
enum class restored_state : std::uint8_t {
  under_way, ///< Another event tells how it ends.
  back,
  lost, ///< It did not come back; see its failure.
};
[[nodiscard]] std::string_view to_string(restored_state state) noexcept;

/// One thing that comes back, or does not.
struct restored_part {
  restored_kind kind{};
  /// Registrations from 0, in the order in which they were asked for; of a plan captured_plan::number(); sub-worlds of
  /// this process from 0, in the order in which they were split off.
  std::uint64_t number = 0;
  std::string name{}; ///< Of a sub-world: its group's. Others have none.
  restored_state state = restored_state::under_way;
  /// By the world's clock. Of a registration and a plan: from the first rank's beginning to the last one's end; of a
  /// sub-world: from its fault until it was ready, or given up. 0 while it is under way.
  nanoseconds took{};
  error failure{};
};

/// Registrations first, then plans, then sub-worlds as they came.
using restoration = std::vector<restored_part>;

/// Those of one kind.
struct restored_sum {
  std::size_t back = 0;
  std::size_t lost = 0;
  std::size_t under_way = 0;
  nanoseconds took{}; ///< Of all, one behind the other.
  nanoseconds slowest{};
};
[[nodiscard]] restored_sum sum_of(const restoration& all, restored_kind kind) noexcept;

/// "1 registration in 0.2 ms, 3 plans in 1.5 ms (the slowest in 0.9 ms), 1 plan not (internal: …), sub-world left in
/// 40.2 ms"; empty for nothing.
[[nodiscard]] std::string describe(const restoration& all);

/// "12.3 ms".
[[nodiscard]] std::string in_tenths_of_milliseconds(nanoseconds span);

} // namespace troupe
