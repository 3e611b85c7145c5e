#include <troupe/processes/launch/process_supervisor.hpp>

#include <troupe/device/error.hpp>
#include <troupe/device/topology/thread_binding.hpp>

#include <asio/buffer.hpp>
#include <asio/dispatch.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/thread_pool.hpp>
#include <asio/use_future.hpp>

#include <fcntl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <map>
#include <memory>
#include <utility>

namespace troupe::launch {

namespace {

using asio::posix::stream_descriptor;
using failure = asio::error_code;

/// The most that is read at once. Longer lines are forwarded in pieces of this size.
constexpr std::size_t piece_bytes = std::size_t{64} << 10U;

/// Blocks \p wanted in the calling thread, except signals that the process ignores (nohup). Returns the previous mask.
sigset_t block_signals(const std::vector<int>& wanted, sigset_t& blocked) {
  sigemptyset(&blocked);
  for (const int signal : wanted) {
    struct sigaction present {};
    static_cast<void>(::sigaction(signal, nullptr, &present));
    if (present.sa_handler != SIG_IGN) sigaddset(&blocked, signal);
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

class supervised_process {
public:
  supervised_process(asio::thread_pool& loop, const process_spec& what, process_handlers handlers,
                     const sigset_t& signals)
    : child_{what, signals},
      handlers_{std::move(handlers)},
      prefix_{what.prefix},
      end_{loop, checked(::fcntl(child_.ended(), F_DUPFD_CLOEXEC, child_.ended()), "fcntl")},
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
  line_splitter lines_[2]{line_splitter{piece_bytes}, line_splitter{piece_bytes}};
};

std::string supervised_process::read(output_stream where, std::size_t at_most) {
  std::array<char, piece_bytes> buffer; // NOLINT(cppcoreguidelines-pro-type-member-init): read_some() fills it
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
      writer_{options.output, options.errors, options.reader_patience,
              [this] { asio::post(thread_, [this] { read_on(); }); }},
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
  signals_.async_wait(stream_descriptor::wait_read, [this](const failure&) {
    signalfd_siginfo one{};
    if (::read(signals_.native_handle(), &one, sizeof one) == static_cast<ssize_t>(sizeof one))
      on_signal_(static_cast<int>(one.ssi_signo));
    await_signals();
  });
}

void process_supervisor::loop::await_end(process_number which) {
  find(which)->end().async_wait(stream_descriptor::wait_read, [this, which](const failure&) { take_end(which); });
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
  find(which)->pipe_of(where).async_wait(stream_descriptor::wait_read,
                                         [this, which, where](const failure&) { take_output(which, where); });
}

void process_supervisor::loop::take_output(process_number which, output_stream where) {
  supervised_process* const process = find(which);
  if (process == nullptr) return; // the process has ended meanwhile
  if (writer_.full()) {
    unread_.emplace_back(which, where);
    return;
  }
  writer_.write(where, process->read(where, piece_bytes));
  if (process->pipe_of(where).is_open()) await_output(which, where);
}

void process_supervisor::loop::read_on() {
  for (const auto& [which, where] : std::exchange(unread_, {})) take_output(which, where);
}

process_supervisor::process_supervisor(const supervisor_options& options) : loop_{std::make_unique<loop>(options)} {}

process_supervisor::~process_supervisor() {
  if (made_.is_inherited()) static_cast<void>(loop_.release()); // the processes are the parent's
}

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
