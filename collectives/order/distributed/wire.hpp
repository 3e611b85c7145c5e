/// Numbers and texts as bytes and back, for what processes of one world tell each other.
#pragma once

#include <troupe/device/error.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace troupe {

/// Appends to a string of bytes. A number takes a byte for each seven of its bits, so small ones take one.
class wire_writer {
public:
  wire_writer() = default;
  /// Goes on behind what is there.
  explicit wire_writer(std::string begun) noexcept : bytes_{std::move(begun)} {}

  void u8(std::uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void flag(bool value) { u8(value ? 1 : 0); }
  void varint(std::uint64_t value) {
    if (value < 0x80U) return u8(static_cast<std::uint8_t>(value));
    std::array<char, 10> all{};
    std::size_t size = 0;
    for (; value >= 0x80U; value >>= 7U) all[size++] = static_cast<char>(value | 0x80U);
    all[size++] = static_cast<char>(value);
    bytes_.append(all.data(), size);
  }
  /// Short where the value is near zero, on either side.
  void signed_varint(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    varint(value < 0 ? ~(bits << 1U) : bits << 1U);
  }
  /// With its length before it.
  void bytes(std::string_view value) {
    varint(value.size());
    bytes_.append(value);
  }
  /// As they are.
  void raw(std::string_view value) { bytes_.append(value); }

  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes_.size(); }
  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }
  [[nodiscard]] std::string_view view() const noexcept { return bytes_; }
  void reserve(std::size_t size_bytes) { bytes_.reserve(size_bytes); }
  void clear() noexcept { bytes_.clear(); }
  /// Takes back what was written behind the first \p size_bytes.
  void cut(std::size_t size_bytes) { bytes_.resize(size_bytes); }
  /// All that was written; nothing is left.
  [[nodiscard]] std::string take() noexcept { return std::exchange(bytes_, {}); }

private:
  std::string bytes_;
};

/// Reads what a wire_writer wrote, from whoever sent it: nothing that comes may be trusted. What is too short, too
/// large or not as it should be makes this read and all that follow return zero or nothing, and ok() false; so a caller
/// may read a whole record and look once, provided that it repeats nothing by a number that it has read and not
/// limited. Lifetime: the bytes outlive it and what it returns of them.
class wire_reader {
public:
  explicit wire_reader(std::string_view bytes) noexcept
    : begin_{bytes.data()}, at_{bytes.data()}, end_{bytes.data() + bytes.size()} {}

  [[nodiscard]] bool ok() const noexcept { return problem_.empty(); }
  /// Also after a failure.
  [[nodiscard]] bool at_end() const noexcept { return at_ == end_; }
  [[nodiscard]] std::size_t left_bytes() const noexcept { return static_cast<std::size_t>(end_ - at_); }

  [[nodiscard]] std::uint8_t u8() noexcept {
    if (at_ == end_) return fail<std::uint8_t>("it ends too early");
    return static_cast<std::uint8_t>(*at_++);
  }
  /// 0 or 1.
  [[nodiscard]] bool flag() noexcept {
    const std::uint8_t value = u8();
    return value > 1 ? fail<bool>("a flag is neither 0 nor 1") : value == 1;
  }
  /// At most \p most.
  [[nodiscard]] std::uint64_t varint(std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) noexcept {
    std::uint64_t value = 0;
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
  /// Between \p least and \p most.
  [[nodiscard]] std::int64_t signed_varint(std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                                           std::int64_t most = std::numeric_limits<std::int64_t>::max()) noexcept {
    const std::uint64_t bits = varint();
    const auto value = static_cast<std::int64_t>((bits & 1U) != 0 ? ~(bits >> 1U) : bits >> 1U);
    return value >= least && value <= most ? value : fail<std::int64_t>("a number is out of its range");
  }
  /// How many things follow, each of which takes \p least_bytes at least: at most \p most, and never more than can be
  /// there, so that room may be made for them.
  [[nodiscard]] std::size_t count(std::size_t most, std::size_t least_bytes = 1) noexcept {
    const std::uint64_t value = varint(most);
    return value <= left_bytes() / least_bytes ? static_cast<std::size_t>(value)
                                               : fail<std::size_t>("it ends before all that it announces");
  }
  /// A number that stands for one of \p Enum, the last of which is \p last.
  template <class Enum>
  [[nodiscard]] Enum one_of(Enum last) noexcept {
    static_assert(std::is_enum_v<Enum>);
    return static_cast<Enum>(varint(static_cast<std::uint64_t>(last)));
  }
  /// At most \p most bytes, with their length before them.
  [[nodiscard]] std::string_view bytes(std::size_t most) noexcept {
    const std::uint64_t size = varint(most);
    if (size > left_bytes()) return fail<std::string_view>("it ends within a text");
    const std::string_view value{at_, static_cast<std::size_t>(size)};
    at_ += size;
    return value;
  }

  /// What was read makes no sense for \p reason, which lives as long as the program.
  void refuse(std::string_view reason) noexcept { fail<int>(reason); }
  /// errc::none while ok(); else what was wrong, and where, with \p what, "a batch of rank 2": errc::internal.
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
    at_ = end_; // whatever is read next fails, too
    return T{};
  }

  const char* begin_;
  const char* at_;
  const char* end_;
  std::string_view problem_{};
  std::ptrdiff_t failed_at_ = 0;
};

} // namespace troupe
