#include <troupe/collectives/pipeline/late_answers.hpp>

#include <utility>

namespace troupe {

void late_answers::add(answer one) {
  ungiven_.fetch_add(1);
  const std::lock_guard lock{mutex_};
  waiting_.push_back(std::move(one));
}

late_answers::answer late_answers::take() {
  const std::lock_guard lock{mutex_};
  if (waiting_.empty()) return nullptr;
  auto oldest = std::move(waiting_.front());
  waiting_.pop_front();
  return oldest;
}

void late_answers::give_next() {
  const auto next = take();
  if (!next) return;
  next({});
  ungiven_.fetch_sub(1);
}

void late_answers::fail(const error& why) {
  while (const auto next = take()) {
    next(why);
    ungiven_.fetch_sub(1);
  }
}

} // namespace troupe
