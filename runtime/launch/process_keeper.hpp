/// Starts processes and watches them from one thread: their ends, what they say, and the signals that come for us.
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

/// Names one process that a keeper has started; never used again.
using process_number = strong_number<struct process_number_tag, std::uint32_t>;

struct started_process {
  process_number number;
  pid_t pid;
};

/// Called by the keeper's thread, which they must not keep. They may call the keeper.
struct process_handlers {
  /// It has ended, and all that it said has been taken.
  std::function<void(process_number, pid_t, exit_status)> on_exit{};
  /// A line of its standard output, which is then not forwarded.
  std::function<void(std::string_view line)> on_line{};
};

struct keeper_options {
  std::vector<int> signals{}; ///< Taken from the process for on_signal(); those that it ignores are left alone.
  std::string output_mark{};  ///< Put before each line on standard output, before its prefix.
  int output = 1;             ///< Where lines go to. The descriptors stay the caller's.
  int errors = 2;
};

/// Lines are forwarded whole: those of one process and stream in order, and nothing comes within a line. While whoever
/// reads us is slow, so are those who write; ends and signals are seen all the same.
///
/// Threads: safe from any. What is asked from elsewhere is done by the keeper's thread, in the order asked.
class process_keeper {
public:
  /// Blocks the signals in the calling thread, for good: construct it before there are others, which would get them.
  explicit process_keeper(keeper_options options = {});
  process_keeper(const process_keeper&) = delete;
  process_keeper& operator=(const process_keeper&) = delete;
  /// Kills all that runs and returns when it has ended and all output is written. No handler is called any more.
  ~process_keeper();

  /// Returns when the program runs. Errors: as child_process.
  started_process start(process_spec what, process_handlers handlers);
  /// Sends \p signal to the process group of \p which, unless it has ended.
  void kill(process_number which, int signal);
  /// Changes what is put before each line from now on.
  void rename(process_number which, std::string prefix);
  /// Puts \p bytes into the standard input of a process that has one. What it does not read waits here.
  void feed(process_number which, std::string bytes);
  /// Ends that input when all has been written.
  void end_input(process_number which);

  /// From now on calls \p handler by the keeper's thread for each signal that comes, or has come before.
  void on_signal(std::function<void(int)> handler);

  /// Writes a line of our own among those of the processes.
  void say(output_stream where, std::string_view line);
  /// Calls \p action by the keeper's thread, soon.
  void post(std::function<void()> action);
  /// The same after \p delay.
  void after(std::chrono::nanoseconds delay, std::function<void()> action);

private:
  class loop;
  std::unique_ptr<loop> loop_;
  std::thread thread_;
};

} // namespace troupe::launch
