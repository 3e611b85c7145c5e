/// A named sequence of one rank's requests, by which the ranks of a world are matched.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// The requests of one client of a rank, in the order in which the client makes them. The k-th collectives that the
/// ranks request in a lane are one operation of all ranks. Different lanes may interleave differently on different
/// ranks.
///
/// A name means the same lane in the whole process. The lookup by name is needed once; a lane is as cheap to copy as a
/// number.
/// Threads: all functions may be called from any thread.
class lane {
public:
  /// Creates the default lane, for clients that name no lane.
  constexpr lane() noexcept = default;
  /// Returns the lane called \p name. Errors: invalid_argument (empty, longer than 64 bytes, or there are already
  /// 65,535 names).
  [[nodiscard]] static lane named(std::string_view name);

  /// Returns the name; "default" for the default lane.
  [[nodiscard]] const std::string& name() const;
  /// Returns the number of the lane: from 0, without gaps, in the order of first naming.
  [[nodiscard]] constexpr std::uint32_t index() const noexcept { return index_; }
  friend constexpr auto operator<=>(lane, lane) noexcept = default;

private:
  explicit constexpr lane(std::uint32_t index) noexcept : index_{index} {}

  std::uint32_t index_ = 0;
};

} // namespace troupe
