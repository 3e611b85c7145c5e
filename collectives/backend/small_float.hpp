/// Floats narrower than 32 bits, as numbers. Replaces CUDA's headers, because a machine for the mock has no CUDA.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace troupe {

/// An IEEE-like format: a sign, then \p ExponentBits, then \p MantissaBits. In formats without infinities ("fn"), the
/// largest exponent holds numbers too, except its last code, which is NaN. Values that are too large become the largest
/// number (like CUDA's __NV_SATFINITE).
template <int ExponentBits, int MantissaBits, bool HasInfinity = true>
struct small_float {
  static constexpr int width = 1 + ExponentBits + MantissaBits;
  using bits = std::conditional_t<(width > 8), std::uint16_t, std::uint8_t>;
  static constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  static constexpr unsigned sign_mask = 1U << (width - 1);
  static constexpr unsigned magnitude_mask = sign_mask - 1;
  static constexpr unsigned exponent_mask = ((1U << ExponentBits) - 1U) << MantissaBits;
  static constexpr unsigned largest = HasInfinity ? exponent_mask - 1 : magnitude_mask - 1;
  static constexpr unsigned quiet_nan = HasInfinity ? exponent_mask | (1U << (MantissaBits - 1)) : magnitude_mask;

  /// Converts to float, exactly.
  [[nodiscard]] static float decode(bits encoded) noexcept {
    const unsigned magnitude = encoded & magnitude_mask;
    float value = 0;
    if (magnitude > largest)
      value = HasInfinity && magnitude == exponent_mask ? std::numeric_limits<float>::infinity()
                                                        : std::numeric_limits<float>::quiet_NaN();
    else
      value = decode_finite(magnitude);
    return (encoded & sign_mask) != 0 ? -value : value;
  }

  /// Rounds to nearest even. A NaN stays a (quiet) NaN.
  [[nodiscard]] static bits encode(float value) noexcept {
    const unsigned sign = std::signbit(value) ? sign_mask : 0;
    if (std::isnan(value)) return static_cast<bits>(sign | quiet_nan);
    const float size = std::fabs(value);
    unsigned magnitude = 0;
    if (std::isinf(size)) {
      magnitude = HasInfinity ? exponent_mask : largest;
    } else {
      magnitude = round(size);
      if (magnitude > largest) magnitude = HasInfinity ? exponent_mask : largest;
    }
    return static_cast<bits>(sign | magnitude);
  }

private:
  static float decode_finite(unsigned magnitude) noexcept {
    const unsigned exponent = magnitude >> MantissaBits;
    const unsigned mantissa = magnitude & ((1U << MantissaBits) - 1U);
    if (exponent == 0) return std::ldexp(static_cast<float>(mantissa), 1 - bias - MantissaBits);
    const unsigned single =
        ((exponent + 127U - static_cast<unsigned>(bias)) << 23U) | (mantissa << (23U - MantissaBits));
    return std::bit_cast<float>(single);
  }

  /// Rounds a finite magnitude; the result may exceed the largest code.
  static unsigned round(float size) noexcept {
    const auto single = std::bit_cast<std::uint32_t>(size);
    const int exponent = static_cast<int>(single >> 23U) - 127;
    if (exponent < 1 - bias) { // subnormal numbers are evenly spaced
      return static_cast<unsigned>(std::nearbyint(std::ldexp(size, MantissaBits + bias - 1)));
    }
    constexpr unsigned dropped = 23U - MantissaBits;
    const std::uint32_t rounded = single + ((1U << (dropped - 1U)) - 1U) + ((single >> dropped) & 1U);
    return (rounded >> dropped) - (static_cast<unsigned>(127 - bias) << MantissaBits);
  }
};

using float16 = small_float<5, 10>;
using bfloat16 = small_float<8, 7>;
using float8_e4m3 = small_float<4, 3, false>;
using float8_e5m2 = small_float<5, 2>;

} // namespace troupe
