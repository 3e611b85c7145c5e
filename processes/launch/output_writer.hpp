/// Writes lines to two descriptors on a thread of its own, which a slow reader may block.
#pragma once

#include <troupe/device/threads/worker.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace troupe::launch {

enum class output_stream : std::uint8_t { output, errors };

/// Writes lines on a thread of its own. Threads: safe from any.
class output_writer {
public:
  /// The writer is full while more bytes than this wait.
  static constexpr std::size_t full_bytes = std::size_t{1} << 20U;
  /// While more bytes than this wait, lines are dropped.
  static constexpr std::size_t dropping_bytes = std::size_t{8} << 20U;

  /// Writes to the descriptors \p output and \p errors, which the caller owns and which outlive this. The writing
  /// thread calls \p has_room when the writer is no longer full. \p patience: see the destructor.
  output_writer(int output, int errors, std::chrono::nanoseconds patience, std::function<void()> has_room);
  output_writer(const output_writer&) = delete;
  output_writer& operator=(const output_writer&) = delete;
  /// Waits until all lines have been written, or until the readers have accepted nothing for the patience.
  ~output_writer();

  /// Writes \p lines as one unit, behind all earlier ones. Never blocks: callers with much output check full() first.
  /// Lines beyond a limit are dropped and counted.
  void write(output_stream where, std::string lines);
  [[nodiscard]] bool full() const;

private:
  class state;

  std::chrono::nanoseconds patience_;
  std::shared_ptr<state> state_;
  worker thread_;
};

} // namespace troupe::launch
