#include <troupe/device/process_exit.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/runtime/logging.hpp>

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

namespace {

constexpr const char* logger_name = "troupe";
constexpr std::size_t queue_limit_bytes = std::size_t{1} << 20U;
constexpr std::chrono::seconds flush_at_exit{1};

/// Writes to standard error without stdio, whose lock a blocked write would hold while the process exits.
class standard_error_sink final : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    for (std::string_view rest{line.data(), line.size()}; !rest.empty();) {
      const ssize_t count = ::write(STDERR_FILENO, rest.data(), rest.size());
      pollfd waiting{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
      if (count >= 0)
        rest.remove_prefix(static_cast<std::size_t>(count));
      else if (errno == EAGAIN) // another process that shares the descriptor has made it non-blocking
        static_cast<void>(::poll(&waiting, 1, -1));
      else if (errno != EINTR)
        return;
    }
  }
  void flush_() override {}
};

/// Blocks all signals on this thread, and so on the threads that it starts.
class signals_blocked {
public:
  signals_blocked() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &former_);
  }
  signals_blocked(const signals_blocked&) = delete;
  signals_blocked& operator=(const signals_blocked&) = delete;
  ~signals_blocked() { ::pthread_sigmask(SIG_SETMASK, &former_, nullptr); }

private:
  sigset_t former_{};
};

/// The lines that wait for the thread that writes them. Never destroyed, because the thread may be blocked in a write
/// while the process exits. std::condition_variable, because simulated threads log, too.
class log_queue final : public ends_with_process {
public:
  log_queue() {
    const signals_blocked none; // a signal that the program handles on another thread must not reach this one
    worker{[this] { write_lines(); }}.detach();
  }

  void use(const std::shared_ptr<spdlog::logger>& logger) {
    const std::lock_guard lock{mutex_};
    to_ = logger;
  }

  void add(spdlog::level::level_enum level, std::string_view text) {
    std::shared_ptr<spdlog::logger> to; // it may be dropped meanwhile, and ends without the lock
    const std::lock_guard lock{mutex_};
    to = to_.lock();
    if (!to || closed_ || !to->should_log(level)) return;
    if (bytes_ + text.size() > queue_limit_bytes) {
      ++dropped_;
      return;
    }
    lines_.push_back({spdlog::log_clock::now(), level, std::string{text}});
    bytes_ += text.size() + sizeof(line);
    changed_.notify_all();
  }

  bool flush(nanoseconds at_most) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, at_most, [this] { return lines_.empty() && dropped_ == 0 && !is_writing_; });
  }

  void end() noexcept override {
    flush(flush_at_exit);
    const std::lock_guard lock{mutex_};
    closed_ = true; // spdlog's static objects end next
    lines_.clear();
  }
  void leave(int /*status*/) noexcept override { end(); }

private:
  struct line {
    spdlog::log_clock::time_point when;
    spdlog::level::level_enum level;
    std::string text;
  };

  void write_lines() {
    name_this_thread("troupe/log");
    std::unique_lock lock{mutex_};
    for (;;) {
      changed_.wait(lock, [this] { return !lines_.empty(); });
      line next = std::move(lines_.front());
      lines_.pop_front();
      bytes_ -= next.text.size() + sizeof(line);
      write(lock, next);
      if (lines_.empty() && dropped_ > 0)
        write(lock, {spdlog::log_clock::now(), spdlog::level::warn,
                     std::to_string(std::exchange(dropped_, 0)) +
                         " lines of this log were dropped, because its reader does not keep up: more than " +
                         std::to_string(queue_limit_bytes >> 10U) + " KiB waited for it"});
    }
  }

  void write(std::unique_lock<std::mutex>& lock, const line& next) {
    auto to = to_.lock();
    is_writing_ = true;
    lock.unlock();
    if (to) to->log(next.when, spdlog::source_loc{}, next.level, next.text);
    to = nullptr; // it may have been dropped meanwhile
    lock.lock();
    is_writing_ = false;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::weak_ptr<spdlog::logger> to_; ///< Owned by spdlog's registry, whose lock a periodic flush can hold for long.
  std::deque<line> lines_;
  std::size_t bytes_ = 0;
  std::size_t dropped_ = 0;
  bool is_writing_ = false;
  bool closed_ = false;
};

constinit std::atomic<log_queue*> the_queue{nullptr};

/// Returns the queue of this process, or null: a forked child has no thread that writes its parent's.
log_queue* present_queue() noexcept {
  log_queue* const queue = the_queue.load(std::memory_order_acquire);
  return queue != nullptr && !queue->is_inherited() ? queue : nullptr;
}

void add_line(spdlog::level::level_enum level, std::string_view line) {
  if (log_queue* const queue = present_queue()) queue->add(level, line);
}

} // namespace

void open_log(const std::string& level) {
  static std::mutex making; // several threads may create runtimes, and spdlog refuses to register a name twice
  const std::lock_guard lock{making};
  auto logger = spdlog::get(logger_name);
  if (!logger) {
    logger = std::make_shared<spdlog::logger>(logger_name, std::make_shared<standard_error_sink>());
    spdlog::initialize_logger(logger);
  }
  logger->set_level(spdlog::level::from_str(level));
  log_queue* queue = present_queue();
  if (queue == nullptr) {
    static auto* const all = new std::vector<std::shared_ptr<log_queue>>;
    queue = all->emplace_back(std::make_shared<log_queue>()).get();
    end_with_process(all->back());
    the_queue.store(queue, std::memory_order_release);
  }
  queue->use(logger);
}

void log_debug(std::string_view line) {
  add_line(spdlog::level::debug, line);
}

void log_info(std::string_view line) {
  add_line(spdlog::level::info, line);
}

void log_warning(std::string_view line) {
  add_line(spdlog::level::warn, line);
}

bool flush_log(nanoseconds at_most) {
  log_queue* const queue = present_queue();
  return queue == nullptr || queue->flush(at_most);
}

} // namespace troupe
