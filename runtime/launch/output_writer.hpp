/// Writes lines to our standard output and standard error from a thread of its own, so that a slow reader or a paused
/// terminal does not delay noticing that a process has died.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace troupe::launch {

enum class output_stream : std::uint8_t { output, errors };

/// A queue of lines with a writer thread. Threads: safe from any.
class output_writer {
public:
  /// Writes to the descriptors \p output and \p errors, which the caller owns and which outlive this. The writer thread
  /// calls \p has_room when the queue is no longer full.
  output_writer(int output, int errors, std::function<void()> has_room);
  output_writer(const output_writer&) = delete;
  output_writer& operator=(const output_writer&) = delete;
  /// Waits until all lines have been written.
  ~output_writer();

  /// Enqueues \p prefix, \p line and a line end as one unit, behind all earlier ones. Never blocks: callers with much
  /// output check full() first.
  void write(output_stream where, std::string_view prefix, std::string_view line);
  /// Returns whether the queue is longer than its limit.
  [[nodiscard]] bool full() const;

private:
  struct piece {
    output_stream where;
    std::string text;
  };

  void run();
  void write_out(const piece& one);

  const int descriptors_[2];
  const std::function<void()> has_room_;
  bool closed_[2]{}; ///< The reader has closed it. Used by the writer thread alone.
  mutable std::mutex guard_;
  std::condition_variable news_;
  std::deque<piece> waiting_;
  std::size_t waiting_bytes_ = 0; ///< Includes the piece that is being written.
  bool ending_ = false;
  std::thread thread_; ///< Started when all other members exist.
};

} // namespace troupe::launch
