#include <troupe/processes/launch/process_supervisor.hpp>

#include <troupe/device/error.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/device/topology/thread_binding.hpp>

#include <asio/buffer.hpp>
#include <asio/dispatch.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/thread_pool.hpp>
#include <asio/use_future.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace troupe::launch {

namespace {

using asio::posix::stream_descriptor;
using failure = asio::error_code;

constexpr std::size_t full_bytes = std::size_t{1} << 20U;
/// Only lines of the launcher and of processes that have ended are accepted while the writer is full, up to this
/// amount.
constexpr std::size_t dropping_bytes = std::size_t{8} << 20U;
constexpr std::size_t read_at_once_bytes = std::size_t{64} << 10U;
/// Longer lines are forwarded in pieces.
constexpr std::size_t line_limit_bytes = std::size_t{64} << 10U;

/// Blocks \p wanted in the calling thread, except signals that the process ignores (nohup). Returns the previous mask.
sigset_t block_signals(const std::vector<int>& wanted, sigset_t& blocked) {
  sigemptyset(&blocked);
  for (const int signal : wanted) {
    struct sigaction present {};
    if (::sigaction(signal, nullptr, &present) == 0 && present.sa_handler != SIG_IGN) sigaddset(&blocked, signal);
  }
  sigset_t former;
  if (const int code = ::pthread_sigmask(SIG_BLOCK, &blocked, &former); code != 0) {
    errno = code;
    throw_system_error("pthread_sigmask", "signals cannot be blocked");
  }
  return former;
}

int checked(int descriptor, const char* call) {
  if (descriptor < 0) throw_system_error(call, "no file descriptor is left: raise the limit (ulimit -n)");
  return descriptor;
}

/// Writes lines on a thread of its own, which a slow reader may block. Threads: safe from any.
class output_writer {
public:
  /// Writes to the descriptors of \p options, which the caller owns and which outlive this. The writing
  /// thread calls \p has_room when the writer is no longer full.
  output_writer(const supervisor_options& options, std::function<void()> has_room)
    : patience_{options.reader_patience},
      state_{std::make_shared<state>(options.output, options.errors, std::move(has_room))},
      thread_{[own = state_] { own->run(); }} {}
  output_writer(const output_writer&) = delete;
  output_writer& operator=(const output_writer&) = delete;
  /// Waits until all lines have been written, or until the readers have accepted nothing for the time of the options.
  ~output_writer() {
    if (state_->finish(patience_))
      thread_.join();
    else
      thread_.detach();
  }

  /// Writes \p lines as one unit, behind all earlier ones. Never blocks: callers with much output check full() first.
  /// Lines beyond a limit are dropped and counted.
  void write(output_stream where, std::string lines) {
    if (!lines.empty()) state_->add(static_cast<std::size_t>(where), std::move(lines));
  }
  /// Returns whether more bytes wait than the limit.
  [[nodiscard]] bool full() const { return state_->is_full(); }

private:
  /// Shared with the thread, which may be left behind in a write.
  class state {
  public:
    state(int output, int errors, std::function<void()> has_room)
      : descriptors_{output, errors}, has_room_{std::move(has_room)} {}

    void add(std::size_t which, std::string lines) {
      const std::lock_guard lock{mutex_};
      if (waiting_bytes_ > dropping_bytes) {
        dropped_bytes_ += lines.size();
        return;
      }
      waiting_bytes_ += lines.size();
      waiting_.emplace_back(which, std::move(lines));
      changed_.notify_all();
    }
    bool is_full() const {
      const std::lock_guard lock{mutex_};
      return waiting_bytes_ > full_bytes;
    }
    /// Returns whether all lines have been written. Gives up when the readers have accepted nothing for \p patience.
    bool finish(std::chrono::nanoseconds patience) {
      std::unique_lock lock{mutex_};
      finishing_ = true;
      changed_.notify_all();
      for (std::uint64_t seen = accepted_bytes_; !finished_; seen = accepted_bytes_)
        if (!changed_.wait_for(lock, patience, [&] { return finished_ || accepted_bytes_ != seen; })) break;
      has_room_ = nullptr;
      return finished_;
    }
    void run() {
      name_this_thread("troupe-output");
      std::unique_lock lock{mutex_};
      for (;;) {
        changed_.wait(lock, [this] { return !waiting_.empty() || finishing_; });
        if (waiting_.empty()) break;
        auto [which, lines] = std::move(waiting_.front());
        waiting_.pop_front();
        write_out(lock, which, lines);
        const std::size_t before = std::exchange(waiting_bytes_, waiting_bytes_ - lines.size());
        if (before > full_bytes && waiting_bytes_ <= full_bytes && has_room_) has_room_();
        if (waiting_.empty() && dropped_bytes_ > 0)
          write_out(lock, static_cast<std::size_t>(output_stream::errors),
                    "troupe launch: " + std::to_string(std::exchange(dropped_bytes_, 0)) +
                        " bytes of output were dropped, because nobody read what came before\n");
      }
      finished_ = true;
      changed_.notify_all();
    }

  private:
    /// Writes in pieces, so that it is seen when the reader accepts some of them.
    void write_out(std::unique_lock<std::mutex>& lock, std::size_t which, std::string_view rest) {
      while (!rest.empty() && !closed_[which]) {
        lock.unlock();
        const ssize_t count = ::write(descriptors_[which], rest.data(), std::min<std::size_t>(rest.size(), PIPE_BUF));
        const int code = errno;
        if (count < 0 && code == EAGAIN) // another process that shares the descriptor has made it non-blocking
          await_room(descriptors_[which]);
        lock.lock();
        if (count < 0 && code != EAGAIN && code != EINTR) closed_[which] = true;
        if (count <= 0) continue;
        rest.remove_prefix(static_cast<std::size_t>(count));
        accepted_bytes_ += static_cast<std::uint64_t>(count);
        changed_.notify_all();
      }
    }
    static void await_room(int descriptor) noexcept {
      pollfd waiting{.fd = descriptor, .events = POLLOUT, .revents = 0};
      static_cast<void>(::poll(&waiting, 1, -1)); // the next write tells why, if it fails
    }

    const int descriptors_[2];
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::function<void()> has_room_; ///< Empty once the owner is gone.
    bool closed_[2]{};               ///< Whether the reader has closed the stream.
    std::deque<std::pair<std::size_t, std::string>> waiting_;
    std::size_t waiting_bytes_ = 0;
    std::size_t dropped_bytes_ = 0;
    std::uint64_t accepted_bytes_ = 0;
    bool finishing_ = false;
    bool finished_ = false;
  };

  std::chrono::nanoseconds patience_;
  std::shared_ptr<state> state_;
  worker thread_;
};

class supervised_process {
public:
  supervised_process(asio::thread_pool& loop, const process_spec& what, process_handlers handlers,
                     const sigset_t& signals)
    : child_{what, signals},
      handlers_{std::move(handlers)},
      prefix_{what.prefix},
      end_{loop, checked(::fcntl(child_.ended(), F_DUPFD_CLOEXEC, 0), "fcntl")},
      pipes_{{loop, child_.output().release()}, {loop, child_.errors().release()}} {
    for (stream_descriptor& one : pipes_) one.non_blocking(true);
  }

  [[nodiscard]] child_process& child() noexcept { return child_; }
  [[nodiscard]] const process_handlers& handlers() const noexcept { return handlers_; }
  /// Returns a descriptor that becomes readable when the process has ended.
  [[nodiscard]] stream_descriptor& end() noexcept { return end_; }
  [[nodiscard]] stream_descriptor& pipe_of(output_stream where) noexcept {
    return pipes_[static_cast<std::size_t>(where)];
  }

  /// Reads the bytes that are available on \p where, at most \p at_most. Returns the lines that they complete.
  [[nodiscard]] std::string read(output_stream where, std::size_t at_most);
  /// Forwards all that the process wrote before it ended, including a last line without an end.
  void finish(output_writer& writer);

private:
  [[nodiscard]] auto add_to(std::string& text) const {
    return [this, &text](std::string_view line) { text.append(prefix_).append(line).push_back('\n'); };
  }

  child_process child_;
  process_handlers handlers_;
  const std::string prefix_;
  stream_descriptor end_; ///< A duplicate: the child closes its own when it is reaped.
  stream_descriptor pipes_[2];
  line_splitter lines_[2]{line_splitter{line_limit_bytes}, line_splitter{line_limit_bytes}};
};

std::string supervised_process::read(output_stream where, std::size_t at_most) {
  std::array<char, read_at_once_bytes> buffer; // NOLINT(cppcoreguidelines-pro-type-member-init): read_some() fills it
  std::string text;
  stream_descriptor& from = pipe_of(where);
  while (from.is_open() && at_most > 0) {
    failure why;
    const std::size_t count = from.read_some(asio::buffer(buffer.data(), std::min(at_most, buffer.size())), why);
    if (why == asio::error::would_block) break;
    if (why) from.close(why);
    at_most -= count;
    lines_[static_cast<std::size_t>(where)].feed({buffer.data(), count}, add_to(text));
  }
  return text;
}

void supervised_process::finish(output_writer& writer) {
  for (const output_stream where : {output_stream::output, output_stream::errors}) {
    // Other processes may hold the pipe and continue to write, so only the bytes available now are read.
    stream_descriptor::bytes_readable left;
    failure closed;
    pipe_of(where).io_control(left, closed);
    std::string text = read(where, left.get());
    lines_[static_cast<std::size_t>(where)].finish(add_to(text));
    writer.write(where, std::move(text));
  }
}

} // namespace

/// The supervisor's thread and all objects that it uses. Its handlers refer to processes by number, because a process
/// may have ended before a handler runs.
class process_supervisor::loop {
public:
  explicit loop(const supervisor_options& options)
    : former_signals_{block_signals(options.signals, taken_signals_)},
      writer_{options, [this] { asio::post(thread_, [this] { read_on(); }); }},
      signals_{thread_, checked(::signalfd(-1, &taken_signals_, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd")} {
    asio::post(thread_, [] { name_this_thread("troupe-supervisor"); });
  }
  loop(const loop&) = delete;
  loop& operator=(const loop&) = delete;
  ~loop() {
    thread_.stop();
    thread_.join();
    for (auto& [which, process] : kept_) process.child().kill(SIGKILL);
    for (auto& [which, process] : kept_) {
      process.child().await_end();
      process.finish(writer_);
    }
  }

  [[nodiscard]] asio::thread_pool& thread() noexcept { return thread_; }
  [[nodiscard]] output_writer& writer() noexcept { return writer_; }

  // Only the thread calls these:
  started_process start(const process_spec& what, process_handlers&& handlers);
  [[nodiscard]] supervised_process* find(process_number which) {
    const auto found = kept_.find(which);
    return found != kept_.end() ? &found->second : nullptr;
  }
  void on_signal(std::function<void(int)> handler) {
    if (!std::exchange(on_signal_, std::move(handler))) await_signals();
  }

private:
  void await_signals();
  void await_end(process_number which);
  void take_end(process_number which);
  void await_output(process_number which, output_stream where);
  void take_output(process_number which, output_stream where);
  /// Continues with the output that was left unread while the writer was full.
  void read_on();

  sigset_t taken_signals_{};
  const sigset_t former_signals_; ///< The initial mask of children.
  asio::thread_pool thread_{1};   ///< One thread, because a process is killed when the thread that started it ends.
  output_writer writer_;
  stream_descriptor signals_;
  std::map<process_number, supervised_process> kept_;
  process_number next_{};
  std::function<void(int)> on_signal_;
  std::vector<std::pair<process_number, output_stream>> unread_;
};

started_process process_supervisor::loop::start(const process_spec& what, process_handlers&& handlers) {
  next_ = next_.next();
  auto [at, added] = kept_.try_emplace(next_, thread_, what, std::move(handlers), former_signals_);
  await_end(next_);
  for (const output_stream where : {output_stream::output, output_stream::errors}) await_output(next_, where);
  return {next_, at->second.child().pid()};
}

void process_supervisor::loop::await_signals() {
  signals_.async_wait(stream_descriptor::wait_read, [this](const failure& why) {
    if (why) return;
    signalfd_siginfo one{};
    while (::read(signals_.native_handle(), &one, sizeof one) == static_cast<ssize_t>(sizeof one))
      on_signal_(static_cast<int>(one.ssi_signo));
    await_signals();
  });
}

void process_supervisor::loop::await_end(process_number which) {
  find(which)->end().async_wait(stream_descriptor::wait_read, [this, which](const failure& why) {
    if (!why) take_end(which);
  });
}

void process_supervisor::loop::take_end(process_number which) {
  const auto found = kept_.find(which);
  const std::optional<exit_status> status = found->second.child().reap();
  if (!status) return await_end(which);
  // Removed before the handler runs: it may start other processes and must not use this number any more.
  auto ended = kept_.extract(found);
  ended.mapped().finish(writer_);
  if (const auto& handler = ended.mapped().handlers().on_exit) handler(which, ended.mapped().child().pid(), *status);
}

void process_supervisor::loop::await_output(process_number which, output_stream where) {
  find(which)->pipe_of(where).async_wait(stream_descriptor::wait_read, [this, which, where](const failure& why) {
    if (!why) take_output(which, where);
  });
}

void process_supervisor::loop::take_output(process_number which, output_stream where) {
  supervised_process* const process = find(which);
  if (process == nullptr) return; // the process has ended meanwhile
  if (writer_.full()) {
    unread_.emplace_back(which, where);
    return;
  }
  writer_.write(where, process->read(where, read_at_once_bytes));
  if (process->pipe_of(where).is_open()) await_output(which, where);
}

void process_supervisor::loop::read_on() {
  for (const auto& [which, where] : std::exchange(unread_, {})) take_output(which, where);
}

process_supervisor::process_supervisor(const supervisor_options& options) : loop_{std::make_unique<loop>(options)} {}

process_supervisor::~process_supervisor() = default;

started_process process_supervisor::start(process_spec what, process_handlers handlers) {
  return asio::dispatch(loop_->thread(), asio::use_future([&] { return loop_->start(what, std::move(handlers)); }))
      .get();
}

void process_supervisor::kill(process_number which, int signal) {
  post([all = loop_.get(), which, signal] {
    if (supervised_process* const process = all->find(which)) process->child().kill(signal);
  });
}

void process_supervisor::on_signal(std::function<void(int)> handler) {
  post([all = loop_.get(), handler = std::move(handler)] { all->on_signal(handler); });
}

void process_supervisor::say(output_stream where, std::string_view line) {
  loop_->writer().write(where, std::string{line} + '\n');
}

void process_supervisor::post(std::function<void()> action) {
  asio::post(loop_->thread(), std::move(action));
}

void process_supervisor::after(std::chrono::nanoseconds delay, std::function<void()> action) {
  const auto timer = std::make_shared<asio::steady_timer>(loop_->thread(), delay);
  timer->async_wait([timer, action = std::move(action)](const failure&) { action(); });
}

} // namespace troupe::launch
