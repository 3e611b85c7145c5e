#include <troupe/completion/poller/track.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

namespace {

/// Number of checks per hang limit for whether the stream waits behind others: rare enough to cost nothing, frequent
/// enough that an operation gets nearly its whole limit after such a wait.
constexpr int looks_in_a_limit = 16;

std::string in_milliseconds(nanoseconds span) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(span).count()) + " ms";
}

} // namespace

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

void in_flight::answer(std::shared_ptr<const agreed_value> value, time_point now) noexcept {
  times_.launched = times_.done = std::max(now, times_.queued);
  reply_.deliver(completion{ticket_, epoch_, times_, 0, std::move(value)});
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
  if (why.effect == effect::unknown_outcome) why.undefined = undefined();
  return why;
}

track::track(rank self, std::unique_ptr<completion_source> source, std::shared_ptr<fault_mark> mark,
             track_limits limits, track_hooks hooks)
  : self_{self},
    source_{std::move(source)},
    source_calls_driver_{source_->calls_driver()},
    mark_{std::move(mark)},
    limits_{limits},
    hooks_{std::move(hooks)} {}

bool track::wait_idle(nanoseconds at_most) {
  const auto until = later(steady_now(), at_most);
  for (;;) {
    if (load() == 0) return true;
    const auto left = until - steady_now();
    if (left <= nanoseconds{0}) return false;
    idle_.park([this] { return load() == 0; }, left);
  }
}

std::optional<time_point> track::running_since() const noexcept {
  const auto since = running_since_.load(std::memory_order_acquire);
  return since == 0 ? std::nullopt : std::optional{time_point{nanoseconds{since}}};
}

void track::forget(std::size_t count) noexcept {
  if (count > 0 && load_.fetch_sub(count) == count) idle_.notify();
}

bool track::poll(time_point now, running_time running) {
  called_driver_ = false;
  if (pending_.empty()) {
    next_probe_ = now + limits_.quiet;
    if (quarantine_.empty() && inbox_.empty()) return false;
  }
  take_pushed();
  lease_.may_report.reset();
  bool any = false;
  while (!pending_.empty() && settle_head(now)) any = true;
  if (mark_->failed()) {
    fail_pending(running);
  } else if (now >= next_check_) {
    next_check_ = now + limits_.check_interval;
    check_deadlines(now);
    check_health(now, running);
  }
  return any;
}

void track::take_pushed() {
  inbox_.take_all([this](std::shared_ptr<in_flight> one) {
    one->taken();
    one->prefetch_reply();
    pending_.push_back(std::move(one));
  });
}

bool track::settle_head(time_point now) {
  in_flight& head = *pending_.front();
  switch (head.at()) {
    case in_flight::stage::refused:
      if (head.refusal().effect == effect::rejected && !mark_->failed()) head.skipped();
      head.fail(head.refusal());
      if (head.refusal().effect == effect::rejected) break; // the work has not touched the buffers
      // The call may have failed after enqueueing the work, so the device may still access the buffers (BUF-1).
      quarantine_.push_back(std::move(pending_.front()));
      settled(now);
      return true;
    case in_flight::stage::launched: {
      bool reached = false;
      called_driver_ = called_driver_ || source_calls_driver_;
      try {
        reached = source_->reached(head.mark());
      } catch (...) {
        raise(current_error());
      }
      // The mark is read after the completion signal: an abort sets the mark first and then makes signals fire.
      if (!reached || mark_->failed() || (lease_.held && !may_report(now))) return false;
      head.succeed(now);
      break;
    }
    default: return false;
  }
  settled(now);
  return true;
}

bool track::may_report(time_point now) {
  if (lease_.may_report) return *lease_.may_report;
  const auto standing = lease_.held->check(lease_.served);
  lease_.may_report = standing == serving_lease::standing::held;
  if (standing != serving_lease::standing::lapsed)
    lease_.lapsed_at.reset();
  else if (!lease_.lapsed_at)
    lease_.lapsed_at = now;
  else if (now - *lease_.lapsed_at >= lease_.held->grace())
    raise(lease_.held->why());
  return *lease_.may_report;
}

void track::tidy() noexcept {
  const std::size_t count = over_.size();
  over_.clear(); // first: a thread that waits for the load to become 0 may rely on the buffers being released
  forget(count);
}

void track::settled(time_point now) noexcept {
  if (pending_.front()) over_.push_back(std::move(pending_.front()));
  pending_.pop_front();
  if (head_started_) { // rare: most operations end before they are seen running
    head_started_.reset();
    running_since_.store(0, std::memory_order_release);
  }
  if (sharing_.place && sharing_.place->is_running()) sharing_.place->ends();
  seen_launching_.reset();
  late_told_ = false;
  next_probe_ = now + limits_.quiet;
}

void track::fail_pending(running_time running) {
  const error why = mark_->why();
  for (auto& one : pending_) {
    if (one->withdraw()) {
      error certain = why;
      certain.effect = effect::rejected;
      one->fail(std::move(certain));
      one = nullptr;
      forget(1);
      continue;
    }
    if (sharing_.place) {
      if (!sharing_.place->is_running()) sharing_.place->runs(one->launch_began());
      sharing_.place->fails(running);
    }
    if (one->at() == in_flight::stage::refused)
      one->fail(one->refusal());
    else
      one->fail(with_unknown_outcome(why));
    quarantine_.push_back(std::move(one));
  }
  pending_.clear();
  if (release_.load()) {
    called_driver_ = true; // to release the buffers
    const std::size_t held = quarantine_.size();
    quarantine_.clear(); // before forget(), as in tidy()
    forget(held);
  }
  if (sharing_.place && quarantine_.empty()) sharing_.place->ends();
}

void track::check_deadlines(time_point now) {
  for (const auto& one : pending_) {
    if (one->answered() || now < one->deadline()) continue;
    // Not withdrawn even if still queued: peers may have launched their parts, and skipping it would break ORD-1.
    const error why{.code = errc::deadline_exceeded,
                    .effect = effect::unknown_outcome,
                    .text = "no outcome before the request's deadline; it stays in its place in the stream",
                    .rank = self_};
    one->fail(why);
    if (hooks_.on_late && !std::exchange(late_told_, true)) hooks_.on_late(one->completed(why));
  }
}

void track::check_health(time_point now, running_time running) {
  if (fault_raised_) return;
  try {
    if (auto verdict = verdict_on_head(now, running)) return raise(std::move(*verdict));
    if (!hooks_.probe || now < next_probe_) return;
    next_probe_ = now + limits_.quiet;
    called_driver_ = true;
    if (error found = hooks_.probe()) raise(std::move(found));
  } catch (...) { // inputs_ready() throws on a failed device
    raise(current_error());
  }
}

std::optional<error> track::verdict_on_head(time_point now, running_time running) {
  if (pending_.empty()) return std::nullopt;
  in_flight& head = *pending_.front();
  const auto reached = head.at();
  if (reached == in_flight::stage::launching && !seen_launching_) // it may have begun since the previous check
    seen_launching_ = running - std::clamp(now - head.launch_began(), nanoseconds{0}, limits_.check_interval);
  if (reached == in_flight::stage::launching && running - *seen_launching_ > limits_.launch)
    return error{.code = errc::deadline_exceeded,
                 .text = "a launch call has not returned within " + in_milliseconds(limits_.launch),
                 .rank = self_};
  if (reached != in_flight::stage::launched) return std::nullopt;
  // Operations launched behind this one wait from now on, also while this one waits for its client's work.
  if (sharing_.place && !sharing_.place->is_running()) sharing_.place->runs(head.launch_began());
  // The time limit for hangs starts when the operation can run: at the head of its stream, with its inputs ready.
  if (!head_started_) {
    called_driver_ = true;
    if (head.inputs_ready()) begin_judging(head, now, running);
    return std::nullopt;
  }
  if (sharing_.place && (now >= next_look_behind_ || running - judged_from_ > limits_.hang)) {
    next_look_behind_ = now + limits_.hang / looks_in_a_limit;
    if (sharing_.others->is_behind(*sharing_.place, running)) judged_from_ = running;
  }
  if (running - judged_from_ <= limits_.hang) return std::nullopt;
  return error{.code = errc::deadline_exceeded,
               .text = "an operation has run on the device for more than " + in_milliseconds(limits_.hang) +
                       ": a peer never came, or the device hangs",
               .rank = self_};
}

void track::begin_judging(in_flight& head, time_point now, running_time running) noexcept {
  head_started_ = now;
  judged_from_ = running;
  head.started(now);
  running_since_.store(now.time_since_epoch().count(), std::memory_order_release);
}

void track::raise(error why) {
  if (std::exchange(fault_raised_, true)) return;
  if (!why.rank) why.rank = self_;
  if (hooks_.on_fault) hooks_.on_fault(std::move(why));
}

bool fault_mark::set(error why) {
  const std::lock_guard lock{mutex_};
  if (failed_.load(std::memory_order_relaxed)) return false;
  why_ = std::move(why);
  failed_.store(true, std::memory_order_release);
  return true;
}

error fault_mark::why() const {
  const std::lock_guard lock{mutex_};
  return why_;
}

} // namespace troupe
