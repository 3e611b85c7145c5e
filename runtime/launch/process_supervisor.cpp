#include <troupe/runtime/launch/process_supervisor.hpp>

#include <troupe/device/error.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/runtime/launch/child_process.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <future>
#include <map>
#include <mutex>
#include <utility>

namespace troupe::launch {

namespace {

constexpr std::size_t full_bytes = std::size_t{1} << 20U;
/// Lines for one stream are written together up to this size.
constexpr std::size_t piece_bytes = std::size_t{64} << 10U;

} // namespace

output_writer::output_writer(int output, int errors, std::function<void()> has_room)
  : descriptors_{output, errors}, has_room_{std::move(has_room)}, thread_{[this] { run(); }} {}

output_writer::~output_writer() {
  {
    const std::lock_guard lock{mutex_};
    ending_ = true;
  }
  news_.notify_one();
  thread_.join();
}

void output_writer::write(output_stream where, std::string_view prefix, std::string_view line) {
  const std::size_t bytes = prefix.size() + line.size() + 1;
  {
    const std::lock_guard lock{mutex_};
    if (waiting_.empty() || waiting_.back().where != where || waiting_.back().text.size() + bytes > piece_bytes)
      waiting_.push_back({where, {}});
    std::string& text = waiting_.back().text;
    text.append(prefix).append(line).push_back('\n');
    waiting_bytes_ += bytes;
  }
  news_.notify_one();
}

bool output_writer::full() const {
  const std::lock_guard lock{mutex_};
  return waiting_bytes_ > full_bytes;
}

void output_writer::run() {
  name_this_thread("troupe-output");
  std::unique_lock lock{mutex_};
  for (;;) {
    news_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const piece one = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    write_out(one);
    lock.lock();
    const bool was_full = waiting_bytes_ > full_bytes;
    waiting_bytes_ -= one.text.size();
    if (was_full && waiting_bytes_ <= full_bytes && !ending_) {
      lock.unlock();
      has_room_();
      lock.lock();
    }
  }
}

void output_writer::write_out(const piece& one) {
  const auto which = static_cast<std::size_t>(one.where);
  std::string_view rest = one.text;
  while (!rest.empty() && !closed_[which]) {
    const ssize_t count = ::write(descriptors_[which], rest.data(), rest.size());
    if (count >= 0)
      rest.remove_prefix(static_cast<std::size_t>(count));
    else if (errno == EAGAIN) // another process that shares the descriptor has made it non-blocking
      ::usleep(1000);
    else if (errno != EINTR)
      closed_[which] = true;
  }
}

namespace {

using steady = std::chrono::steady_clock;

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

} // namespace

class process_supervisor::loop {
public:
  explicit loop(supervisor_options options)
    : options_{std::move(options)},
      former_signals_{block_signals(options_.signals, taken_signals_)},
      signals_{::signalfd(-1, &taken_signals_, SFD_CLOEXEC | SFD_NONBLOCK)},
      wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
    if (!signals_ || !wake_) throw_system_error("signalfd", "no file descriptor is left: raise the limit (ulimit -n)");
  }

  void run();
  [[nodiscard]] bool is_here() const { return std::this_thread::get_id() == thread_.load(); }
  void post(std::function<void()> action);
  void wake() const {
    const std::uint64_t one = 1;
    static_cast<void>(::write(wake_.native(), &one, sizeof one) != 0);
  }
  void stop() {
    stopping_ = true;
    wake();
  }
  output_writer& writer() { return writer_; }

  // Called by the supervisor's thread alone:
  started_process start(const process_spec& what, process_handlers&& handlers);
  [[nodiscard]] supervised_process* find(process_number which) {
    const auto found = kept_.find(which);
    return found != kept_.end() ? &found->second : nullptr;
  }
  void on_signal(std::function<void(int)> handler) { on_signal_ = std::move(handler); }
  void after(steady::time_point when, std::function<void()> action) { timers_.emplace(when, std::move(action)); }

private:
  enum class part : std::uint8_t { end, output, errors };
  struct watched {
    process_number which;
    part what;
  };

  void gather();
  void wait();
  void take_signals();
  void take_posted();
  void take_events();
  void take_event(const watched& one);
  void take_timers();
  void take_end(process_number which);
  void end_all();

  const supervisor_options options_;
  sigset_t taken_signals_{};
  const sigset_t former_signals_; ///< The initial mask of children.
  const file_descriptor signals_;
  const file_descriptor wake_;
  output_writer writer_{options_.output, options_.errors, [this] { wake(); }};
  std::atomic<std::thread::id> thread_{};
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;

  std::map<process_number, supervised_process> kept_;
  process_number next_{};
  std::function<void(int)> on_signal_;
  std::multimap<steady::time_point, std::function<void()>> timers_;
  std::vector<pollfd> polled_;
  std::vector<watched> watched_; ///< The entries of polled_ after the first two.
};

void process_supervisor::loop::run() {
  thread_ = std::this_thread::get_id();
  name_this_thread("troupe-supervisor");
  while (!stopping_) {
    gather();
    wait();
    if (stopping_) break;
    take_posted(); // what was posted before a process ended is carried out before its end is reported
    take_events();
    take_signals();
    take_timers();
  }
  end_all();
}

/// Lists the descriptors to poll. Exits are first, so that they are handled first.
void process_supervisor::loop::gather() {
  polled_.assign({{.fd = wake_.native(), .events = POLLIN, .revents = 0},
                  {.fd = on_signal_ ? signals_.native() : -1, .events = POLLIN, .revents = 0}});
  watched_.clear();
  const auto watch = [this](process_number which, part what, int descriptor) {
    if (descriptor < 0) return;
    polled_.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
    watched_.push_back({which, what});
  };
  for (auto& [which, process] : kept_) watch(which, part::end, process.child().ended());
  if (writer_.full()) return;
  for (auto& [which, process] : kept_) {
    watch(which, part::output, process.child().output().native());
    watch(which, part::errors, process.child().errors().native());
  }
}

void process_supervisor::loop::wait() {
  timespec rest{};
  if (!timers_.empty()) {
    const auto left = std::max<std::chrono::nanoseconds>(timers_.begin()->first - steady::now(), {});
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    rest = {.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
  }
  if (::ppoll(polled_.data(), polled_.size(), timers_.empty() ? nullptr : &rest, nullptr) <= 0)
    for (pollfd& one : polled_) one.revents = 0;
  std::uint64_t count = 0;
  if (polled_[0].revents != 0) static_cast<void>(::read(wake_.native(), &count, sizeof count) != 0);
}

void process_supervisor::loop::take_events() {
  for (std::size_t i = 0; i < watched_.size(); ++i)
    if (polled_[i + 2].revents != 0) take_event(watched_[i]);
}

void process_supervisor::loop::take_event(const watched& one) {
  supervised_process* const process = find(one.which);
  if (process == nullptr) return; // the process has ended meanwhile
  switch (one.what) {
    case part::end: return take_end(one.which);
    case part::output: return process->read(output_stream::output, read_at_once_bytes, writer_);
    case part::errors: return process->read(output_stream::errors, read_at_once_bytes, writer_);
  }
}

void process_supervisor::loop::take_end(process_number which) {
  const auto found = kept_.find(which);
  const std::optional<exit_status> status = found->second.child().reap();
  if (!status) return;
  // Removed before the handler runs: it may start other processes and must not use this number any more.
  auto ended = kept_.extract(found);
  ended.mapped().finish(writer_);
  if (const auto& handler = ended.mapped().handlers().on_exit) handler(which, ended.mapped().child().pid(), *status);
}

void process_supervisor::loop::take_signals() {
  if (polled_[1].revents == 0) return;
  signalfd_siginfo one{};
  while (::read(signals_.native(), &one, sizeof one) == static_cast<ssize_t>(sizeof one))
    on_signal_(static_cast<int>(one.ssi_signo));
}

void process_supervisor::loop::take_posted() {
  std::vector<std::function<void()>> all;
  {
    const std::lock_guard lock{mutex_};
    all.swap(posted_);
  }
  for (const auto& action : all) action();
}

void process_supervisor::loop::take_timers() {
  while (!timers_.empty() && timers_.begin()->first <= steady::now()) {
    const auto action = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    action();
  }
}

void process_supervisor::loop::end_all() {
  for (auto& [which, process] : kept_) process.child().kill(SIGKILL);
  for (auto& [which, process] : kept_) {
    pollfd waiting{.fd = process.child().ended(), .events = POLLIN, .revents = 0};
    constexpr int patience_ms = 5000;
    while (::poll(&waiting, 1, patience_ms) < 0 && errno == EINTR) {
    }
    process.finish(writer_);
  }
  kept_.clear();
}

void process_supervisor::loop::post(std::function<void()> action) {
  {
    const std::lock_guard lock{mutex_};
    posted_.push_back(std::move(action));
  }
  wake();
}

started_process process_supervisor::loop::start(const process_spec& what, process_handlers&& handlers) {
  next_ = next_.next();
  auto [at, added] = kept_.try_emplace(next_, what, std::move(handlers), former_signals_);
  return {next_, at->second.child().pid()};
}

process_supervisor::process_supervisor(supervisor_options options)
  : loop_{std::make_unique<loop>(std::move(options))}, thread_{[this] { loop_->run(); }} {}

process_supervisor::~process_supervisor() {
  loop_->stop();
  thread_.join();
}

started_process process_supervisor::start(process_spec what, process_handlers handlers) {
  if (loop_->is_here()) return loop_->start(what, std::move(handlers));
  auto answer = std::make_shared<std::promise<started_process>>();
  auto answered = answer->get_future();
  loop_->post([this, answer, &what, &handlers] {
    try {
      answer->set_value(loop_->start(what, std::move(handlers)));
    } catch (...) {
      answer->set_exception(std::current_exception());
    }
  });
  return answered.get();
}

void process_supervisor::kill(process_number which, int signal) {
  post([this, which, signal] {
    if (supervised_process* const process = loop_->find(which)) process->child().kill(signal);
  });
}

void process_supervisor::on_signal(std::function<void(int)> handler) {
  post([this, handler = std::move(handler)] { loop_->on_signal(handler); });
}

void process_supervisor::say(output_stream where, std::string_view line) {
  loop_->writer().write(where, {}, line);
}

void process_supervisor::post(std::function<void()> action) {
  loop_->post(std::move(action));
}

void process_supervisor::after(std::chrono::nanoseconds delay, std::function<void()> action) {
  post([this, when = steady::now() + delay, action = std::move(action)] { loop_->after(when, action); });
}

supervised_process::supervised_process(const process_spec& what, process_handlers handlers, const sigset_t& signals)
  : child_{what, signals},
    handlers_{std::move(handlers)},
    prefix_{what.prefix},
    lines_{line_splitter{line_limit_bytes}, line_splitter{line_limit_bytes}} {}

file_descriptor& supervised_process::pipe_of(output_stream where) noexcept {
  return where == output_stream::output ? child_.output() : child_.errors();
}

void supervised_process::read(output_stream where, std::size_t at_most, output_writer& writer) {
  std::array<char, std::size_t{64} << 10U> buffer; // NOLINT(cppcoreguidelines-pro-type-member-init): read() fills it
  file_descriptor& from = pipe_of(where);
  while (from && at_most > 0) {
    const ssize_t count = ::read(from.native(), buffer.data(), std::min(at_most, buffer.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      from.close();
      return;
    }
    at_most -= static_cast<std::size_t>(count);
    lines_[static_cast<std::size_t>(where)].feed({buffer.data(), static_cast<std::size_t>(count)},
                                                 [&](std::string_view line) { writer.write(where, prefix_, line); });
  }
}

void supervised_process::finish(output_writer& writer) {
  for (const output_stream where : {output_stream::output, output_stream::errors}) {
    // Other processes may hold the pipe and continue to write, so only the bytes available now are read.
    int left = 0;
    if (pipe_of(where) && ::ioctl(pipe_of(where).native(), FIONREAD, &left) == 0)
      read(where, static_cast<std::size_t>(left), writer);
    lines_[static_cast<std::size_t>(where)].finish([&](std::string_view line) { writer.write(where, prefix_, line); });
  }
}

} // namespace troupe::launch
