#include <troupe/collectives/backend/launch_parts.hpp>
#include <troupe/processes/order/distributed_capture.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

std::size_t distributed_capture::offer(rank, std::span<const operation* const> all, bool divisible) {
  const launch_parts parts = parts_of_launch(all);
  if (parts.collectives.empty() && parts.transfers.empty()) return all.size();
  std::unique_lock lock{mutex_};
  if (!failure_) {
    ++asked_;
    lock.unlock(); // the answer may come at once
    send_({.kind = request_record::form::capture_launch,
           .place = place_,
           .outline = outline_of_launch(all, divisible, digests_of_places(parts.collectives, registered_))});
    lock.lock();
  }
  wait(lock);
  return divisible ? std::min(agreed_, all.size()) : all.size();
}

void distributed_capture::end(rank) {
  std::unique_lock lock{mutex_};
  if (!failure_) {
    ++asked_;
    ended_ = true;
    lock.unlock();
    send_({.kind = request_record::form::capture_end, .place = place_});
    lock.lock();
  }
  wait(lock);
}

void distributed_capture::wait(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return failure_ || answered_ >= asked_; });
  if (failure_) throw exception{failure_};
}

void distributed_capture::fail(error why) {
  {
    const std::lock_guard lock{mutex_};
    if (failure_) return;
    failure_ = why;
    changed_.notify_all();
  }
  send_({.kind = request_record::form::capture_failure, .why = std::move(why), .place = place_});
}

void distributed_capture::expire() {
  if (has_ended()) return; // the peers may have been told that all have ended
  fail({.code = errc::deadline_exceeded,
        .text = "the capture has not ended before its deadline, and the controller did not say which rank is late"});
}

error distributed_capture::failure() const {
  const std::lock_guard lock{mutex_};
  return failure_;
}

bool distributed_capture::has_ended() const {
  const std::lock_guard lock{mutex_};
  return ended_;
}

void distributed_capture::answer(const error& why, std::size_t agreed) {
  const std::lock_guard lock{mutex_};
  ++answered_;
  agreed_ = agreed;
  if (why && !failure_) failure_ = why;
  changed_.notify_all();
}

} // namespace troupe
