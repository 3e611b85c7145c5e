#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/pipeline/pipeline_call.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// About 10 µs of one GPU's time, as long as a launch takes.
constexpr std::size_t most_bytes_of_short = std::size_t{512} << 10U;

} // namespace

pipeline_call::pipeline_call(ticket name, epoch formed_in, time_point deadline, reply_promise&& reply, operation&& what,
                             request_origin from, progress_record& progress, const communicator& peers)
  : in_flight{name, formed_in, deadline, std::move(reply)},
    what_{std::move(what)},
    is_staged_{staging_of(what_) != staging::none},
    sketch_{what_, from},
    progress_{progress},
    from_{from},
    self_{peers.self()},
    world_size_{peers.world_size()},
    where_{peers.where()->id()},
    payload_bytes_{progress.line ? payload_of(what_) : 0} {
  const auto* const again = std::get_if<replay>(&what_);
  if (again != nullptr && again->of) plan_ = again->of->hold();
  std::size_t bytes = 0;
  visit_operands(what_, [&](const operand& one, std::string_view) {
    if (one.ready) ready_.push_back(one.ready.get());
    bytes += one.memory.size_bytes();
  });
  if (is_staged_) staged_ = std::make_unique<staging_hold>();
  is_short_ = !is_staged_ && again == nullptr && bytes <= most_bytes_of_short;
}

void pipeline_call::note_asked() noexcept {
  if (!progress_.line || is_noted_.load(std::memory_order_relaxed) || is_noted_.exchange(true)) return;
  progress_.line->asked(in_flight_line(), sketch_, from_.client, payload_bytes_, site_, queued_at());
}

void pipeline_call::note_launched(launch_place at, std::size_t fused, time_point when) const noexcept {
  if (!progress_.line) return;
  progress_.line->launched(
      in_flight_line(), from_.position,
      {.matched = matched_, .launch_began = launch_began(), .launched = when, .at = at, .fused = fused});
}

void pipeline_call::started(time_point now) noexcept {
  progress_.running.set(sketch_);
  started_ = now;
}

void pipeline_call::succeeded(const completion& result) noexcept {
  progress_.finished.set(sketch_);
  count();
  if (progress_.line) {
    const times& at = result.times;
    progress_.line->finished(in_flight_line(), started_, at.done);
    progress_.line->tally().count_success(what_.index(), payload_bytes_, at.launched - at.queued, at.done - at.queued);
  }
}

bool pipeline_call::agreed_on(std::shared_ptr<const agreed_value> value, time_point now) noexcept {
  note_asked();
  // Before the reply, as in count().
  if (progress_.commits && !progress_.commits->note(from_.of_world ? std::nullopt : std::optional{from_.lane}, value)) {
    fail({.code = errc::rebuilding,
          .effect = effect::unknown_outcome,
          .text = "the epoch has ended while the value was on its way: if another rank has received it, the resume "
                  "points of the next epoch tell it",
          .rank = self_});
    return false;
  }
  if (release_ > 0) progress_.successes.note_early(release_);
  if (progress_.line) {
    progress_.line->finished(in_flight_line(), std::nullopt, now);
    progress_.line->tally().count_success(what_.index(), value->bytes.size(), nanoseconds{0}, now - queued_at());
  }
  answer(std::move(value), now);
  return true;
}

void pipeline_call::failed(errc code) noexcept {
  note_asked();
  if (progress_.line) {
    progress_.line->answered(in_flight_line(), code, steady_now());
    progress_.line->tally().count_failure(code);
  }
}

void pipeline_call::wait_also_for(const pipeline_call& other) {
  for (const event* one : other.ready_)
    if (std::ranges::find(ready_, one) == ready_.end()) ready_.push_back(one);
}

std::shared_ptr<const undefined_buffers> pipeline_call::undefined() const noexcept {
  return undefined_ranges(what_, self_, world_size_, where_);
}

bool pipeline_call::inputs_ready() const {
  return std::ranges::all_of(ready_, [](const event* one) { return one->reached(); });
}

} // namespace troupe
