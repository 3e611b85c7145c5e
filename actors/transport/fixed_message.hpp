/// Transfers one preamble message of fixed size through a channel, in as many calls as needed.
#pragma once

#include <troupe/actors/transport/guard_channel.hpp>

#include <array>
#include <span>

namespace troupe {

/// Reads or writes exactly N bytes. Threads: one.
template <std::size_t N>
class fixed_message {
public:
  fixed_message() noexcept = default;
  explicit fixed_message(const std::array<std::uint8_t, N>& bytes) noexcept : bytes_{bytes} {}

  /// Reads more bytes. Returns done when all bytes have been read.
  [[nodiscard]] channel_progress read(guard_channel& from) {
    while (moved_ < N) {
      std::size_t count = 0;
      const channel_progress got = from.read(std::span{bytes_}.subspan(moved_), count);
      if (got != channel_progress::done) return got;
      moved_ += count;
    }
    return channel_progress::done;
  }

  /// Writes more bytes. Returns done when all bytes have been written.
  [[nodiscard]] channel_progress write(guard_channel& to) {
    while (moved_ < N) {
      std::size_t count = 0;
      const channel_progress got = to.write(std::span<const std::uint8_t>{bytes_}.subspan(moved_), count);
      if (got != channel_progress::done) return got;
      moved_ += count;
    }
    return channel_progress::done;
  }

  [[nodiscard]] std::span<const std::uint8_t, N> bytes() const noexcept { return bytes_; }

private:
  std::array<std::uint8_t, N> bytes_{};
  std::size_t moved_ = 0;
};

} // namespace troupe
