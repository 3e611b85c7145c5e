/// Memory and requests for the tests of captured plans.
#pragma once

#include "outcomes.hpp"
#include "runtimes.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace troupe::tests {

inline constexpr std::size_t plan_count = 64;
inline constexpr std::size_t plan_length = plan_count * sizeof(float);

[[nodiscard]] inline std::size_t index(const rank_capture& one) {
  return static_cast<std::size_t>(one.self().value());
}

[[nodiscard]] inline operation sum_in_place(const buffer& values) {
  return all_reduce{values, values, plan_count};
}

[[nodiscard]] inline std::vector<operation> sums_in_place(const std::vector<buffer>& values) {
  std::vector<operation> parts;
  for (const buffer& one : values) parts.push_back(sum_in_place(one));
  return parts;
}

/// Returns whether every element of every rank's buffer is \p value.
[[nodiscard]] inline bool all_are(world& where, const std::vector<buffer>& memory, float value) {
  for (const rank self : where.local_ranks())
    for (const float seen : read_back(where, self, memory[static_cast<std::size_t>(self.value())]))
      if (seen != value) return false;
  return true;
}

inline void set_all(world& where, const std::vector<buffer>& memory, float value) {
  const buffer host = where.allocate_pinned(plan_length);
  std::ranges::fill(host.host_span<float>(), value);
  for (const rank self : where.local_ranks())
    where.copy(self, host, memory[static_cast<std::size_t>(self.value())]).get();
}

[[nodiscard]] inline std::vector<buffer> room(const world& where, std::size_t size_bytes = plan_length) {
  std::vector<buffer> made;
  for (const rank self : where.local_ranks()) made.push_back(where.allocate(self, size_bytes));
  return made;
}

/// Returns the error of capturing \p function, and checks that the world still serves requests afterwards.
[[nodiscard]] inline error refusal_of(world& where, const capture_function& function, plan_options options = {}) {
  error why = error_of([&] { static_cast<void>(where.capture(function, std::move(options))); });
  CHECK(why.effect == effect::rejected);
  const auto values = ranked_values(where, plan_count);
  where.ask(sums_in_place(values)).get();
  CHECK(all_are(where, values, ranked_sum(where.size())));
  return why;
}

} // namespace troupe::tests
