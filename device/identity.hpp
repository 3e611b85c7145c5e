/// Strong types for identities that must not be confused: a rank is not a device, an epoch is not a ticket. They are in
/// the lowest layer because every error names them.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace troupe {

/// An integer with a distinct meaning. Numbers with different tags do not convert into each other.
template <class Tag, class Rep>
class strong_number {
public:
  using value_type = Rep;

  constexpr strong_number() noexcept = default;
  /// Wraps \p value.
  constexpr explicit strong_number(Rep value) noexcept : value_{value} {}

  /// Returns the underlying number.
  [[nodiscard]] constexpr Rep value() const noexcept { return value_; }
  /// Returns the following number.
  [[nodiscard]] constexpr strong_number next() const noexcept { return strong_number{static_cast<Rep>(value_ + 1)}; }
  friend constexpr auto operator<=>(strong_number, strong_number) noexcept = default;

private:
  Rep value_{};
};

/// Returns the number in decimal.
template <class Tag, class Rep>
[[nodiscard]] std::string to_string(strong_number<Tag, Rep> number) {
  return std::to_string(number.value());
}

/// Ordinal of a GPU (or simulated GPU) in this process, from 0.
using device_id = strong_number<struct device_id_tag, int>;
/// Epoch of one device. It increases when the device's memory is lost, so that older buffers become stale.
using device_epoch = strong_number<struct device_epoch_tag, std::uint32_t>;
/// Position in a world, from 0 to size − 1.
using rank = strong_number<struct rank_tag, int>;
/// Counts the formations of one world, from 1 (EPO-1).
using epoch = strong_number<struct epoch_tag, std::uint64_t>;
/// Identifies one accepted request at the actor that accepted it.
using ticket = strong_number<struct ticket_tag, std::uint64_t>;

/// Identifies one formation of a world to all its ranks. It is a capability: never log or dump it (SEC-1).
struct unique_id {
  std::array<std::byte, 128> bytes{};
};

/// Identifies a world and one of its epochs. The world's number is unique in the process and the same in all its
/// epochs; 0 means no world.
struct world_stamp {
  std::uint64_t world = 0;
  troupe::epoch epoch{};

  friend bool operator==(const world_stamp&, const world_stamp&) = default;
};

} // namespace troupe

/// Hash for unordered containers.
template <class Tag, class Rep>
struct std::hash<troupe::strong_number<Tag, Rep>> {
  std::size_t operator()(troupe::strong_number<Tag, Rep> number) const noexcept {
    return std::hash<Rep>{}(number.value());
  }
};
