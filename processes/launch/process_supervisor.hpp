/// Starts child processes and serves them from one thread: observes their exits and forwards their output line by line.
#pragma once

#include <troupe/device/identity.hpp>
#include <troupe/device/process_mark.hpp>
#include <troupe/processes/launch/child_process.hpp>
#include <troupe/processes/launch/output_writer.hpp>

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::launch {

/// Identifies one process of a supervisor. Never reused.
using process_number = strong_number<struct process_number_tag, std::uint32_t>;

struct started_process {
  process_number number;
  pid_t pid = 0;
};

/// Callbacks. The supervisor's thread calls them; they must return quickly. They may call the supervisor.
struct process_handlers {
  /// The process has ended, and all its output has been read.
  std::function<void(process_number, pid_t, exit_status)> on_exit{};
};

struct supervisor_options {
  std::vector<int> signals{}; ///< Signals to receive for on_signal(). Those that the process ignores are left alone.
  int output = 1;             ///< The descriptors for lines. The caller owns them.
  int errors = 2;
  /// How long the destructor waits for readers of the output that accept nothing. What is left then is lost.
  std::chrono::nanoseconds reader_patience = std::chrono::seconds{10};
};

/// Runs child processes and forwards their output to this process's descriptors. Lines are forwarded whole: lines of
/// one process and stream keep their order, and are not interleaved with others. If the reader of the forwarded output
/// is slow, processes that write are blocked; exits and signals are still handled.
///
/// Threads: safe from any. The supervisor's thread carries out calls from other threads in their order.
class process_supervisor {
public:
  /// Blocks the signals in the calling thread permanently. Construct it before there are other threads, because those
  /// would receive the signals.
  explicit process_supervisor(const supervisor_options& options = {});
  process_supervisor(const process_supervisor&) = delete;
  process_supervisor& operator=(const process_supervisor&) = delete;
  /// Kills all running processes. Returns when they have ended and all output is written, or nobody reads it. No
  /// handler is called any more. In a fork it does nothing.
  ~process_supervisor();

  /// Starts a process and returns when its program runs. Errors: those of child_process.
  started_process start(process_spec what, process_handlers handlers);
  /// Sends \p signal to the process group of \p which, unless it has ended.
  void kill(process_number which, int signal);

  /// Sets the function that the supervisor's thread calls for each signal, including those received before.
  void on_signal(std::function<void(int)> handler);

  /// Writes \p line among the lines of the processes.
  void say(output_stream where, std::string_view line);
  /// Calls \p action on the supervisor's thread, as soon as possible.
  void post(std::function<void()> action);
  /// Calls \p action on the supervisor's thread after \p delay.
  void after(std::chrono::nanoseconds delay, std::function<void()> action);

private:
  class loop;
  const process_mark made_;
  std::unique_ptr<loop> loop_;
};

/// Divides text that comes in pieces into lines.
class line_splitter {
public:
  /// Lines longer than \p limit_bytes are passed on in several pieces, so that at most \p limit_bytes are buffered.
  explicit line_splitter(std::size_t limit_bytes) noexcept : limit_bytes_{limit_bytes} {}

  /// Calls \p line for each line that \p bytes complete, without its end.
  template <class Line>
  void feed(std::string_view bytes, Line&& line) {
    while (!bytes.empty()) {
      const std::size_t end = bytes.find('\n');
      const std::size_t count = std::min({end, bytes.size(), limit_bytes_ - held_.size()});
      held_.append(bytes.substr(0, count));
      bytes.remove_prefix(count);
      const bool ends = count == end;
      if (ends) bytes.remove_prefix(1);
      // A line that fills the buffer waits for its end or for one more byte.
      if (ends || !bytes.empty()) give(line);
    }
  }

  /// Calls \p line for the remaining bytes, if the last line had no end.
  template <class Line>
  void finish(Line&& line) {
    if (!held_.empty()) give(line);
  }

private:
  template <class Line>
  void give(Line&& line) {
    line(std::string_view{held_});
    held_.clear();
  }

  std::size_t limit_bytes_;
  std::string held_;
};

} // namespace troupe::launch
