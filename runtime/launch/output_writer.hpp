/// Writes lines to our standard output and standard error from a thread of its own, so that a reader who is slow, or a
/// terminal that is held, never keeps us from seeing that a process has died.
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

/// Threads: safe from any.
class output_writer {
public:
  /// Writes to the descriptors \p output and \p errors, which stay the caller's and outlive this. \p has_room is called
  /// by the writer's thread when it is full no longer.
  output_writer(int output, int errors, std::function<void()> has_room);
  output_writer(const output_writer&) = delete;
  output_writer& operator=(const output_writer&) = delete;
  /// Returns when all has been written.
  ~output_writer();

  /// Takes \p prefix, \p line and an end of line, to be written as one, after all that was taken before. Never blocks:
  /// who has much to say looks whether it is full first.
  void write(output_stream where, std::string_view prefix, std::string_view line);
  /// More waits to be written than should.
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
  bool closed_[2]{}; ///< Nobody reads it any more. The thread's own.
  mutable std::mutex guard_;
  std::condition_variable news_;
  std::deque<piece> waiting_;
  std::size_t waiting_bytes_ = 0; ///< What is being written counts until it has been.
  bool ending_ = false;
  std::thread thread_; ///< Begins when all else is there.
};

} // namespace troupe::launch
