#include <troupe/actors/transport/guard_splice.hpp>

#include <algorithm>

namespace troupe {

namespace {

void gather_one(const guard_channel& channel, bool wants_read, bool wants_write, std::vector<pollfd>& into) {
  const int events = (wants_read ? channel.read_events() : 0) | (wants_write ? channel.write_events() : 0);
  if (events != 0) into.push_back({channel.descriptor(), static_cast<short>(events), 0});
}

} // namespace

guard_splice::guard_splice(const guard_limits& limits, time_point now)
  : limits_{limits},
    inward_{limits.buffer_bytes, limits.frame_bytes, now},
    outward_{limits.buffer_bytes, limits.frame_bytes, now} {}

void guard_splice::blame(bool outside, guard_fault why) {
  if (fault_) return;
  is_outside_ = outside;
  fault_ = std::move(why);
}

void guard_splice::judge(guard_pipe::state state, const guard_pipe& pipe, const guard_channel& source,
                         const guard_channel& target) {
  const bool from_outside = &pipe == &inward_;
  switch (state) {
    case guard_pipe::state::going:
    case guard_pipe::state::over: return;
    case guard_pipe::state::source_failed: return blame(from_outside, source.fault());
    case guard_pipe::state::target_failed: return blame(!from_outside, target.fault());
    case guard_pipe::state::bad_frame: return blame(from_outside, {guard_event_kind::bad_frame, pipe.frame_text()});
  }
}

void guard_splice::advance(guard_channel& outside, guard_channel& inside, time_point now) {
  if (!inward_.is_over()) judge(inward_.pump(outside, inside, now), inward_, outside, inside);
  if (fault_) return;
  if (!outward_.is_over()) judge(outward_.pump(inside, outside, now), outward_, inside, outside);
  if (fault_) return;
  is_over_ = inward_.is_over() && outward_.is_over();
  if (is_over_ || now < due()) return;
  for (const guard_pipe* pipe : {&inward_, &outward_}) {
    if (!pipe->is_stuck() || now < later(pipe->last_progress(), limits_.stall)) continue;
    // Bytes that are not read are their reader's fault; an incomplete frame is its writer's fault.
    blame((pipe == &inward_) != pipe->wants_write(),
          {guard_event_kind::broken, "transferred nothing for " + std::to_string(limits_.stall.count()) + " ms"});
    return;
  }
  is_over_ = inward_.has_ended() || outward_.has_ended();
}

void guard_splice::gather(const guard_channel& outside, const guard_channel& inside, std::vector<pollfd>& into) const {
  gather_one(outside, inward_.wants_read(), outward_.wants_write(), into);
  gather_one(inside, outward_.wants_read(), inward_.wants_write(), into);
}

time_point guard_splice::due() const noexcept {
  time_point first = time_point::max();
  for (const guard_pipe* pipe : {&inward_, &outward_})
    if (pipe->is_stuck()) first = std::min(first, later(pipe->last_progress(), limits_.stall));
  if (inward_.has_ended() || outward_.has_ended())
    first = std::min(first, later(std::max(inward_.last_progress(), outward_.last_progress()), limits_.closing));
  return first;
}

} // namespace troupe
