/// Encodes numbers and texts as bytes, for the messages between the processes of one world.
#pragma once

#include <troupe/device/error.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

inline constexpr std::size_t longest_varint_bytes = 10;
/// Writes a number as wire_writer::varint() does, and returns the end of what it has written.
inline char* put_varint(std::uint64_t value, char* to) noexcept {
  for (; value >= 0x80U; value >>= 7U) *to++ = static_cast<char>(value | 0x80U);
  *to++ = static_cast<char>(value);
  return to;
}

/// Appends to a string of bytes. A number takes one byte for every seven of its bits, so small numbers take one.
class wire_writer {
public:
  wire_writer() = default;
  /// Appends to \p begun.
  explicit wire_writer(std::string begun) noexcept : bytes_{std::move(begun)} {}

  void u8(std::uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void flag(bool value) { u8(value ? 1 : 0); }
  void varint(std::uint64_t value) {
    if (value < 0x80U) return u8(static_cast<std::uint8_t>(value));
    std::array<char, longest_varint_bytes> all{};
    bytes_.append(all.data(), static_cast<std::size_t>(put_varint(value, all.data()) - all.data()));
  }
  /// Appends a number that may be negative. Numbers near zero are short.
  void signed_varint(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    varint(value < 0 ? ~(bits << 1U) : bits << 1U);
  }
  /// Writes the length, then the bytes.
  void bytes(std::string_view value) {
    varint(value.size());
    bytes_.append(value);
  }
  /// Writes the bytes without a length.
  void raw(std::string_view value) { bytes_.append(value); }

  // wire_reader has functions with the names of those that follow, so that one function template lists the fields of a
  // record for both directions. Limits are checked by the reader; only text() truncates.

  /// Writes a flag, a number of any type, an enumerator or a string. A number whose type has a sign may be negative.
  template <class T, class... Limits>
  void field(const T& value, Limits...) {
    if constexpr (std::is_same_v<T, bool>)
      flag(value);
    else if constexpr (std::is_same_v<T, std::string>)
      bytes(value);
    else if constexpr (std::is_enum_v<T> || std::is_unsigned_v<T>)
      varint(static_cast<std::uint64_t>(value));
    else if constexpr (std::is_integral_v<T>)
      signed_varint(value);
    else
      field(value.value()); // a strong_number
  }
  /// Writes a strong_number or a duration that is not negative, although its type has a sign.
  template <class T>
  void ordinal(const T& value, std::uint64_t = 0) {
    if constexpr (requires { value.count(); })
      varint(static_cast<std::uint64_t>(value.count()));
    else
      varint(static_cast<std::uint64_t>(value.value()));
  }
  /// Writes a text for people, of which it truncates what exceeds \p most.
  void text(std::string_view value, std::size_t most) { bytes(value.substr(0, most)); }
  /// Writes a flag, and calls \p each with the value if there is one.
  template <class T, class Each>
  void maybe(const std::optional<T>& value, Each each) {
    flag(value.has_value());
    if (value) each(*value);
  }
  /// Writes the number of elements, and calls \p each with each of them.
  template <class List, class Each>
  void list(const List& all, std::size_t, std::size_t, Each each) {
    varint(all.size());
    for (const auto& one : all) each(one);
  }

  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes_.size(); }
  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }
  [[nodiscard]] std::string_view view() const noexcept { return bytes_; }
  void reserve(std::size_t size_bytes) { bytes_.reserve(size_bytes); }
  void clear() noexcept { bytes_.clear(); }
  /// Removes everything after the first \p size_bytes.
  void cut(std::size_t size_bytes) { bytes_.resize(size_bytes); }
  /// Returns all that was written, and leaves the writer empty.
  [[nodiscard]] std::string take() noexcept {
    std::string all = std::move(bytes_);
    bytes_.clear();
    return all;
  }

private:
  std::string bytes_;
};

/// Reads what a wire_writer wrote. The input is not trusted. Input that is too short, too large or malformed makes this
/// read and all later ones return zero or an empty value, and ok() returns false. A caller may therefore read a whole
/// record and check once, unless it uses a number that it has read as a loop count without a limit. Lifetime: the bytes
/// must outlive the reader and the views that it returns.
class wire_reader {
public:
  explicit wire_reader(std::string_view bytes) noexcept
    : begin_{bytes.data()}, at_{bytes.data()}, end_{bytes.data() + bytes.size()} {}

  [[nodiscard]] bool ok() const noexcept { return problem_.empty(); }
  /// Returns whether nothing is left to be read; also true after a failure.
  [[nodiscard]] bool at_end() const noexcept { return at_ == end_; }
  [[nodiscard]] std::size_t left_bytes() const noexcept { return static_cast<std::size_t>(end_ - at_); }

  [[nodiscard]] std::uint8_t u8() noexcept {
    if (at_ == end_) return fail<std::uint8_t>("it ends too early");
    return static_cast<std::uint8_t>(*at_++);
  }
  /// Reads 0 or 1.
  [[nodiscard]] bool flag() noexcept {
    const std::uint8_t value = u8();
    return value > 1 ? fail<bool>("a flag is neither 0 nor 1") : value == 1;
  }
  /// Reads a number of at most \p most.
  [[nodiscard]] std::uint64_t varint(std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) noexcept {
    std::uint64_t value = 0;
    if (at_ != end_ && static_cast<std::uint8_t>(*at_) < 0x80U) { // most are short
      value = static_cast<std::uint8_t>(*at_++);
      return value <= most ? value : fail<std::uint64_t>("a number is too large");
    }
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) return fail<std::uint64_t>("it ends within a number");
      const auto byte = static_cast<std::uint8_t>(*at_++);
      const auto bits = static_cast<std::uint64_t>(byte & 0x7FU);
      if (shift == 63 && bits > 1) break;
      value |= bits << shift;
      if (byte < 0x80U) return value <= most ? value : fail<std::uint64_t>("a number is too large");
    }
    return fail<std::uint64_t>("a number has more than 64 bits");
  }
  /// Reads a number between \p least and \p most.
  [[nodiscard]] std::int64_t signed_varint(std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                                           std::int64_t most = std::numeric_limits<std::int64_t>::max()) noexcept {
    const std::uint64_t bits = varint();
    const auto value = static_cast<std::int64_t>((bits & 1U) != 0 ? ~(bits >> 1U) : bits >> 1U);
    return value >= least && value <= most ? value : fail<std::int64_t>("a number is out of its range");
  }
  /// Reads the number of elements that follow, each of at least \p least_bytes. The result is at most \p most, and
  /// never more than the remaining bytes can hold, so the caller may allocate for it.
  [[nodiscard]] std::size_t count(std::size_t most, std::size_t least_bytes = 1) noexcept {
    const std::uint64_t value = varint(most);
    return value <= left_bytes() / least_bytes ? static_cast<std::size_t>(value)
                                               : fail<std::size_t>("it ends before all that it announces");
  }
  /// Reads a number as a value of \p Enum, whose last value is \p last.
  template <class Enum>
  [[nodiscard]] Enum one_of(Enum last) noexcept {
    static_assert(std::is_enum_v<Enum>);
    return static_cast<Enum>(varint(static_cast<std::uint64_t>(last)));
  }
  /// Reads a length and that many bytes, at most \p most.
  [[nodiscard]] std::string_view bytes(std::size_t most) noexcept {
    const std::uint64_t size = varint(most);
    if (size > left_bytes()) return fail<std::string_view>("it ends within a text");
    const std::string_view value{at_, static_cast<std::size_t>(size)};
    at_ += size;
    return value;
  }

  // The counterparts of wire_writer's functions: see there.

  /// \p limits: the last enumerator, the length of a string, or those of varint() or signed_varint().
  template <class T, class... Limits>
  void field(T& value, Limits... limits) {
    if constexpr (std::is_same_v<T, bool>) {
      value = flag();
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = bytes(limits...);
    } else if constexpr (std::is_enum_v<T>) {
      value = one_of(limits...);
    } else if constexpr (std::is_unsigned_v<T>) {
      value = static_cast<T>(varint(limits...));
    } else if constexpr (std::is_integral_v<T>) {
      if constexpr (sizeof...(limits) == 0)
        value = static_cast<T>(signed_varint(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
      else
        value = static_cast<T>(signed_varint(limits...));
    } else {
      auto plain = value.value();
      field(plain, limits...);
      value = T{plain};
    }
  }
  template <class T>
  void ordinal(T& value, std::uint64_t most = std::numeric_limits<std::int64_t>::max()) {
    if constexpr (requires { value.count(); })
      value = T{static_cast<typename T::rep>(varint(most))};
    else
      value = T{static_cast<typename T::value_type>(varint(most))};
  }
  void text(std::string& value, std::size_t most) { value = bytes(most); }
  template <class T, class Each>
  void maybe(std::optional<T>& value, Each each) {
    value.reset();
    if (flag()) each(value.emplace());
  }
  /// Replaces \p all by at most \p most elements of at least \p least_bytes each: see count().
  template <class T, class Each>
  void list(std::vector<T>& all, std::size_t most, std::size_t least_bytes, Each each) {
    all.clear();
    for (std::size_t left = count(most, least_bytes); left > 0 && ok(); --left) each(all.emplace_back());
  }

  /// Makes the reader fail with \p reason, which must be a string with static lifetime.
  void refuse(std::string_view reason) noexcept { fail<int>(reason); }
  /// Returns errc::none while ok(); otherwise errc::internal, with the reason and the place in \p what, e.g. "a batch
  /// of rank 2".
  [[nodiscard]] error failure(std::string_view what) const {
    if (ok()) return {};
    return {.code = errc::internal,
            .text = std::string{what} + " cannot be read: at byte " + std::to_string(failed_at_) + " of " +
                    std::to_string(end_ - begin_) + ", " + std::string{problem_}};
  }

private:
  template <class T>
  T fail(std::string_view reason) noexcept {
    if (ok()) {
      problem_ = reason;
      failed_at_ = at_ - begin_;
    }
    at_ = end_; // every later read fails, too
    return T{};
  }

  const char* begin_;
  const char* at_;
  const char* end_;
  std::string_view problem_{};
  std::ptrdiff_t failed_at_ = 0;
};

} // namespace troupe
