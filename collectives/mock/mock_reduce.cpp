#include <troupe/collectives/mock/mock_reduce.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// An element as it lies in memory, and the type that it is combined in.
template <class Stored, class Combined>
struct element {
  using stored = Stored;
  using combined = Combined;
  static Combined load(Stored value) noexcept { return static_cast<Combined>(value); }
  static Stored store(Combined value) noexcept { return static_cast<Stored>(value); }
};

struct bf16_element {
  using stored = std::uint16_t;
  using combined = float;
  static float load(std::uint16_t bits) noexcept { return from_bf16(bits); }
  static std::uint16_t store(float value) noexcept { return to_bf16(value); }
};

struct add {
  template <class T>
  T operator()(T left, T right) const noexcept {
    if constexpr (std::is_integral_v<T>) { // signed overflow is undefined, and u8 would be promoted: wrap by hand
      using bits = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<bits>(static_cast<bits>(left) + static_cast<bits>(right)));
    } else {
      return left + right;
    }
  }
};

template <class T>
bool is_nan(T value) noexcept {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

struct lesser {
  template <class T>
  T operator()(T left, T right) const noexcept {
    return is_nan(left) || !(right < left || is_nan(right)) ? left : right;
  }
};

struct greater {
  template <class T>
  T operator()(T left, T right) const noexcept {
    return is_nan(left) || !(left < right || is_nan(right)) ? left : right;
  }
};

template <class Element, class Combine>
void reduce(std::span<const reduce_part> parts, std::size_t count, Combine combine) {
  using stored = typename Element::stored;
  // Elements go through memcpy, since a slice may begin at any byte; compilers make plain vector loads of it.
  const auto load = [](const std::byte* base, std::size_t index) {
    stored value;
    std::memcpy(&value, base + index * sizeof(stored), sizeof(stored));
    return Element::load(value);
  };

  std::vector<typename Element::combined> sums(count);
  for (std::size_t i = 0; i < count; ++i) sums[i] = load(parts.front().send, i);
  for (const reduce_part& part : parts.subspan(1))
    for (std::size_t i = 0; i < count; ++i) sums[i] = combine(sums[i], load(part.send, i));

  for (const reduce_part& part : parts)
    for (std::size_t i = 0; i < count; ++i) {
      const stored value = Element::store(sums[i]);
      std::memcpy(part.recv + i * sizeof(stored), &value, sizeof(stored));
    }
}

template <class Element>
void reduce_by(std::span<const reduce_part> parts, std::size_t count, reduction op) {
  switch (op) {
    case reduction::sum: return reduce<Element>(parts, count, add{});
    case reduction::min: return reduce<Element>(parts, count, lesser{});
    case reduction::max: return reduce<Element>(parts, count, greater{});
  }
}

} // namespace

float from_bf16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

std::uint16_t to_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Rounding could carry a NaN's payload into an infinity: keep its upper half and make it quiet.
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  const std::uint32_t to_nearest_even = 0x7FFFU + ((bits >> 16U) & 1U);
  return static_cast<std::uint16_t>((bits + to_nearest_even) >> 16U);
}

void reduce_parts(std::span<const reduce_part> parts, std::size_t count, dtype type, reduction op) {
  if (count == 0 || parts.empty()) return;
  switch (type) {
    case dtype::u8: return reduce_by<element<std::uint8_t, std::uint8_t>>(parts, count, op);
    case dtype::i32: return reduce_by<element<std::int32_t, std::int32_t>>(parts, count, op);
    case dtype::i64: return reduce_by<element<std::int64_t, std::int64_t>>(parts, count, op);
    case dtype::f32: return reduce_by<element<float, float>>(parts, count, op);
    case dtype::f64: return reduce_by<element<double, double>>(parts, count, op);
    case dtype::bf16: return reduce_by<bf16_element>(parts, count, op);
  }
}

} // namespace troupe
