/// Starts processes and watches them from one thread: their exits, their output, and the signals that we receive.
#pragma once

#include <troupe/runtime/launch/exit_status.hpp>
#include <troupe/runtime/launch/output_writer.hpp>
#include <troupe/runtime/launch/process_spec.hpp>

#include <troupe/device/identity.hpp>

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/types.h>

namespace troupe::launch {

/// Identifies one process of a keeper. Never reused.
using process_number = strong_number<struct process_number_tag, std::uint32_t>;

struct started_process {
  process_number number;
  pid_t pid;
};

/// Callbacks. The keeper's thread calls them; they must return quickly. They may call the keeper.
struct process_handlers {
  /// The process has ended, and all its output has been read.
  std::function<void(process_number, pid_t, exit_status)> on_exit{};
  /// A line of its standard output. If set, lines are not forwarded.
  std::function<void(std::string_view line)> on_line{};
};

struct keeper_options {
  std::vector<int> signals{}; ///< Signals to receive for on_signal(). Those that the process ignores are left alone.
  std::string output_mark{};  ///< Put before each line on standard output, in front of its prefix.
  int output = 1;             ///< The descriptors for lines. The caller owns them.
  int errors = 2;
};

/// Lines are forwarded whole: lines of one process and stream keep their order, and are not interleaved with others. If
/// our reader is slow, the processes that write are slowed down too; exits and signals are still noticed.
///
/// Threads: safe from any. The keeper's thread carries out calls from other threads in their order.
class process_keeper {
public:
  /// Blocks the signals in the calling thread permanently. Construct it before there are other threads, because those
  /// would receive the signals.
  explicit process_keeper(keeper_options options = {});
  process_keeper(const process_keeper&) = delete;
  process_keeper& operator=(const process_keeper&) = delete;
  /// Kills all running processes. Returns when they have ended and all output is written. No handler is called any
  /// more.
  ~process_keeper();

  /// Returns when the program runs. Errors: those of child_process.
  started_process start(process_spec what, process_handlers handlers);
  /// Sends \p signal to the process group of \p which, unless it has ended.
  void kill(process_number which, int signal);
  /// Changes the prefix of later lines.
  void rename(process_number which, std::string prefix);
  /// Writes \p bytes to the standard input of a process that has one. Bytes that it does not read yet are queued here.
  void feed(process_number which, std::string bytes);
  /// Closes that input when all bytes have been written.
  void end_input(process_number which);

  /// Sets the function that the keeper's thread calls for each signal, including those received before.
  void on_signal(std::function<void(int)> handler);

  /// Writes a line of our own among those of the processes.
  void say(output_stream where, std::string_view line);
  /// Calls \p action on the keeper's thread, soon.
  void post(std::function<void()> action);
  /// The same after \p delay.
  void after(std::chrono::nanoseconds delay, std::function<void()> action);

private:
  class loop;
  std::unique_ptr<loop> loop_;
  std::thread thread_;
};

} // namespace troupe::launch
