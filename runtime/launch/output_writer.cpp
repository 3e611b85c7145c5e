#include <troupe/runtime/launch/output_writer.hpp>

#include <troupe/device/topology/thread_binding.hpp>

#include <unistd.h>

#include <cerrno>
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
    const std::lock_guard lock{guard_};
    ending_ = true;
  }
  news_.notify_one();
  thread_.join();
}

void output_writer::write(output_stream where, std::string_view prefix, std::string_view line) {
  const std::size_t bytes = prefix.size() + line.size() + 1;
  {
    const std::lock_guard lock{guard_};
    if (waiting_.empty() || waiting_.back().where != where || waiting_.back().text.size() + bytes > piece_bytes)
      waiting_.push_back({where, {}});
    std::string& text = waiting_.back().text;
    text.append(prefix).append(line).push_back('\n');
    waiting_bytes_ += bytes;
  }
  news_.notify_one();
}

bool output_writer::full() const {
  const std::lock_guard lock{guard_};
  return waiting_bytes_ > full_bytes;
}

void output_writer::run() {
  name_this_thread("troupe-output");
  std::unique_lock lock{guard_};
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

} // namespace troupe::launch
