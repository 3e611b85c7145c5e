#include <troupe/completion/poller/in_flight.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

bool in_flight::begin_launch(time_point now) noexcept {
  // Written before the exchange publishes it; no thread reads it while the stage is queued.
  launch_began_ = now;
  stage expected = stage::queued;
  return stage_.compare_exchange_strong(expected, stage::launching, std::memory_order_acq_rel);
}

void in_flight::end_launch(launch_place at, time_point now) noexcept {
  place_ = at;
  times_.launched = now;
  stage_.store(stage::launched, std::memory_order_release);
}

void in_flight::refuse(error why) noexcept {
  refusal_ = std::move(why);
  stage_.store(stage::refused, std::memory_order_release);
}

bool in_flight::withdraw() noexcept {
  stage expected = stage::queued;
  return stage_.compare_exchange_strong(expected, stage::withdrawn, std::memory_order_acq_rel);
}

void in_flight::succeed(time_point now) noexcept {
  times_.done = std::max(now, times_.launched); // the poller may have read the time before the launch ended
  const completion result{ticket_, epoch_, times_, place_.launch};
  succeeded(result);
  reply_.deliver(result);
}

void in_flight::fail(error why) noexcept {
  if (answered()) return;
  why = completed(std::move(why));
  failed(why.code);
  reply_.deliver(std::move(why));
}

error in_flight::completed(error why) const noexcept {
  why.ticket = ticket_;
  why.epoch = epoch_;
  if (ran_before_) why.effect = effect::unknown_outcome;
  if (why.effect == effect::unknown_outcome) why.undefined = undefined();
  return why;
}

} // namespace troupe
