#include <troupe/processes/launch/output_writer.hpp>

#include <troupe/device/topology/thread_binding.hpp>

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string_view>
#include <utility>

namespace troupe::launch {

/// Shared with the thread, which may be left behind in a write.
class output_writer::state {
public:
  state(int output, int errors, std::function<void()> has_room)
    : descriptors_{output, errors}, has_room_{std::move(has_room)} {}

  void add(output_stream where, std::string lines) {
    const std::lock_guard lock{mutex_};
    if (waiting_bytes_ > dropping_bytes) {
      dropped_bytes_ += lines.size();
      return;
    }
    waiting_bytes_ += lines.size();
    waiting_.emplace_back(where, std::move(lines));
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
    has_room_ = [] {};
    return finished_;
  }
  void run() {
    name_this_thread("troupe-output");
    std::unique_lock lock{mutex_};
    for (;;) {
      changed_.wait(lock, [this] { return !waiting_.empty() || finishing_; });
      if (waiting_.empty()) break;
      auto [where, lines] = std::move(waiting_.front());
      waiting_.pop_front();
      write_out(lock, where, lines);
      const std::size_t before = std::exchange(waiting_bytes_, waiting_bytes_ - lines.size());
      if (before > full_bytes && waiting_bytes_ <= full_bytes) has_room_();
      if (waiting_.empty() && dropped_bytes_ != 0)
        write_out(lock, output_stream::errors,
                  "troupe launch: " + std::to_string(std::exchange(dropped_bytes_, {})) +
                      " bytes of output were dropped, because nobody read what came before\n");
    }
    finished_ = true;
    changed_.notify_all();
  }

private:
  /// Writes in pieces, so that it is seen when the reader accepts some of them.
  void write_out(std::unique_lock<std::mutex>& lock, output_stream where, std::string_view rest) {
    const int descriptor = descriptors_[static_cast<std::size_t>(where)];
    bool& closed = closed_[static_cast<std::size_t>(where)];
    while (!rest.empty() && !closed) {
      lock.unlock();
      const ssize_t count = ::write(descriptor, rest.data(), std::min<std::size_t>(rest.size(), PIPE_BUF));
      const int code = count < 0 ? errno : 0;
      // Another process that shares the descriptor has made it non-blocking.
      if (code == EAGAIN) await_room(descriptor);
      lock.lock();
      if (code != 0) {
        closed = code != EAGAIN && code != EINTR;
        continue;
      }
      rest.remove_prefix(static_cast<std::size_t>(count));
      accepted_bytes_ += static_cast<std::uint64_t>(count);
      changed_.notify_all();
    }
  }
  static void await_room(int descriptor) noexcept {
    pollfd waiting{descriptor, POLLOUT, {}};
    static_cast<void>(::ppoll(&waiting, 1, nullptr, nullptr)); // the next write tells why, if it fails
  }

  const int descriptors_[2];
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> has_room_; ///< Does nothing once the owner is gone.
  bool closed_[2]{};               ///< Whether the reader has closed the stream.
  std::deque<std::pair<output_stream, std::string>> waiting_;
  std::size_t waiting_bytes_{};
  std::size_t dropped_bytes_{};
  std::uint64_t accepted_bytes_{};
  bool finishing_ = false;
  bool finished_ = false;
};

output_writer::output_writer(int output, int errors, std::chrono::nanoseconds patience, std::function<void()> has_room)
  : patience_{patience}, state_{std::make_shared<state>(output, errors, std::move(has_room))}, thread_{[own = state_] {
      own->run();
    }} {}

output_writer::~output_writer() {
  if (state_->finish(patience_))
    thread_.join();
  else
    thread_.detach();
}

void output_writer::write(output_stream where, std::string lines) {
  if (!lines.empty()) state_->add(where, std::move(lines));
}

bool output_writer::full() const {
  return state_->is_full();
}

} // namespace troupe::launch
