/// A named stream of one rank's requests: what the ranks of a world are matched by.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// The requests of one client of a rank, in the order in which it asks for them. The k-th collective that each rank
/// asks for in a lane is one operation of them all; different lanes may interleave differently on different ranks.
///
/// Names mean the same in the whole process and cost a lookup once; a lane itself is as cheap as a number.
/// Threads: safe from any.
class lane {
public:
  /// The lane of those who name none.
  constexpr lane() noexcept = default;
  /// Errors: invalid_argument (empty, longer than 64 bytes, or the 65,536th name).
  [[nodiscard]] static lane named(std::string_view name);

  /// As named; "default" of the lane of those who name none.
  [[nodiscard]] const std::string& name() const;
  /// From 0, without gaps, in the order of first naming.
  [[nodiscard]] constexpr std::uint32_t index() const noexcept { return index_; }
  friend constexpr auto operator<=>(lane, lane) noexcept = default;

private:
  explicit constexpr lane(std::uint32_t index) noexcept : index_{index} {}

  std::uint32_t index_ = 0;
};

} // namespace troupe
