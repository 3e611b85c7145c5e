// The request path, second half: launches on the launcher's thread.
#include <troupe/collectives/pipeline/launch_parts.hpp>
#include <troupe/collectives/pipeline/pipeline_call.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/device/planted_bug.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// Launches that share one completion mark. A mark after work in flight costs the launcher half as much as a launch
/// (docs/design/0024-shared-marks.md).
constexpr std::size_t most_unmarked = 8;

} // namespace

/// Calls launch_ended() at the end of its scope, also after a failure.
class rank_pipeline::observed_launch {
public:
  explicit observed_launch(const std::shared_ptr<launch_observer>& observer) noexcept : observer_{observer.get()} {}
  observed_launch(const observed_launch&) = delete;
  observed_launch& operator=(const observed_launch&) = delete;
  ~observed_launch() {
    if (observer_ != nullptr) observer_->launch_ended();
  }

private:
  launch_observer* observer_;
};

std::shared_ptr<launcher_tail> pipeline_job::run() noexcept {
  auto by = std::exchange(by_, nullptr);
  launch(*by);
  by->end_launch();
  return by->is_unmarked() ? std::move(by) : nullptr;
}

bool pipeline_call::continues(const launcher_tail& left) const noexcept {
  return by() == &left && all_have_asked_ && is_short_ && ready_.empty();
}

void pipeline_call::launch(rank_pipeline& by) noexcept {
  by.launch(*this);
}

void rank_pipeline::begin_launch(time_point now) noexcept {
  launching_since_.store(now.time_since_epoch().count(), std::memory_order_release);
}

void rank_pipeline::end_launch() {
  launching_since_.store(0, std::memory_order_release);
  launched_.store(launched_.load(std::memory_order_relaxed) + 1);
  if (after_launch_) after_launch_();
}

void rank_pipeline::launch(pipeline_call& one) {
  if (mark_->failed() || !stream_) return;
  const time_point began = services_.time->now();
  if (!one.begin_launch(began)) return;
  begin_launch(began);
  if (services_.observer) tell_observer(one);
  const observed_launch told{services_.observer};
  try {
    for (const event* ready : one.ready()) stream_->ref().wait(*ready);
    if (const auto* again = std::get_if<replay>(&one.what())) {
      if (error why = launch_replay(*again)) return one.refuse(std::move(why));
    } else if (one.is_staged())
      staging_->launch(one.what(), *peers_, *stream_, one.staged());
    else if (const auto* move = std::get_if<copy>(&one.what()))
      stream_->ref().copy(move->to.memory.data(), move->from.memory.data(), move->from.memory.size_bytes());
    else if (const auto* parts = std::get_if<group>(&one.what()); parts && is_planted(planted_bug::split_group))
      for (const operation& part : parts->parts) peers_->launch(part, *stream_);
    else
      launch_with_copies(*peers_, one.what(), *stream_);
    shared_event behind;
    if (one.listener() != nullptr) behind = events_->record(*stream_);
    const launch_place at = mark_launch(one.is_short());
    progress_->launched.set(one.sketch());
    if (behind) tell_of(one, std::move(behind), at.launch);
    const time_point ended = services_.time->now();
    if (progress_->line) progress_->line->tally().count_launch(1);
    one.end_launch(at, ended);
    one.note_launched(at, 1, ended);
  } catch (...) {
    error why = launch_failure();
    one.refuse(with_unknown_outcome(why));
    report(std::move(why));
  }
}

void rank_pipeline::launch(const pipeline_calls& several) {
  if (mark_->failed() || !stream_) return;
  const time_point began = services_.time->now();
  const auto gone = std::ranges::find_if_not(several, [&](const auto& one) { return one->begin_launch(began); });
  if (gone != several.end()) {
    // A request is withdrawn only because the communicator has failed, and it was answered as certainly not run. The
    // others must not run either, because peers launch the whole batch (ORD-1).
    error why = mark_->why();
    why.effect = effect::rejected;
    for (auto one = several.begin(); one != gone; ++one) (*one)->refuse(why);
    return;
  }
  begin_launch(began);
  try {
    if (services_.observer) tell_observer(several);
    const observed_launch told{services_.observer};
    for (const event* ready : several.front()->ready()) stream_->ref().wait(*ready);
    together_.clear();
    for (const auto& one : several) together_.push_back(&one->what());
    peers_->launch_together(together_, *stream_);
    const auto is_heard = [](const auto& one) { return one->listener() != nullptr; };
    shared_event behind; // one event for all, because all are done when the last is
    if (std::ranges::any_of(several, is_heard)) behind = events_->record(*stream_);
    const launch_place at = mark_launch(false);
    progress_->launched.set(several.back()->sketch(), collectives_in(several));
    if (behind)
      for (const auto& one : several)
        if (is_heard(one)) tell_of(*one, behind, at.launch);
    const time_point ended = services_.time->now();
    if (progress_->line) progress_->line->tally().count_launch(several.size());
    for (const auto& one : several) {
      one->end_launch(at, ended);
      one->note_launched(at, several.size(), ended);
    }
  } catch (...) {
    error why = launch_failure();
    for (const auto& one : several) one->refuse(with_unknown_outcome(why));
    report(std::move(why));
  }
}

void rank_pipeline::tell_observer(const pipeline_call& one) const noexcept {
  const launched_request alone{one.name(), one.from(), &one.what()};
  services_.observer->about_to_launch({self(), epoch_, where()->id(), {&alone, 1}});
}

void rank_pipeline::tell_observer(const pipeline_calls& several) {
  observed_.clear();
  for (const auto& one : several) observed_.push_back({one->name(), one->from(), &one->what()});
  services_.observer->about_to_launch({self(), epoch_, where()->id(), observed_});
}

void rank_pipeline::tell_of(const pipeline_call& one, shared_event behind, std::uint64_t launch) const noexcept {
  // Called before the request counts as launched, because the poller could deliver the outcome first.
  one.listener()->enqueued({self(), one.name(), epoch_, std::move(behind), launch});
}

launch_place rank_pipeline::mark_launch(bool may_be_late) {
  ++launches_;
  if (may_be_late && unmarked_ + 1 < most_unmarked) {
    ++unmarked_;
    return {launches_, marks_ + 1};
  }
  arm_mark();
  return {launches_, marks_};
}

void rank_pipeline::end() noexcept {
  try {
    if (stream_ && !mark_->failed()) arm_mark();
  } catch (...) {
    report(launch_failure());
  }
}

void rank_pipeline::arm_mark() {
  track_->source().arm(*stream_, marks_ + 1);
  ++marks_;
  unmarked_ = 0;
}

error rank_pipeline::launch_failure() const {
  // Peers may have launched theirs, so this rank no longer matches them: the communicator has failed. If an abort made
  // the call fail, the reason for the abort is returned.
  error why = failed() ? mark_->why() : current_error();
  if (!why.rank) why.rank = self();
  return why;
}

} // namespace troupe
