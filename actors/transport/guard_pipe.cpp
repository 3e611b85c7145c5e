#include <troupe/actors/transport/guard_pipe.hpp>

#include <algorithm>

namespace troupe {

namespace {

constexpr int pump_rounds = 4; ///< Per call.
constexpr std::size_t least_buffer_bytes = 1u << 10;

} // namespace

guard_pipe::guard_pipe(std::size_t buffer_bytes, std::uint32_t longest_frame, time_point now)
  : buffer_(std::max(buffer_bytes, least_buffer_bytes)), meter_{longest_frame}, last_progress_{now} {}

guard_pipe::step guard_pipe::take(guard_channel& from) {
  if (!wants_read()) return step::waits;
  if (end_ == buffer_.size()) {
    std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
              buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
    end_ -= begin_;
    begin_ = 0;
  }
  std::size_t count = 0;
  switch (from.read(std::span{buffer_}.subspan(end_), count)) {
    case channel_progress::done: break;
    case channel_progress::blocked: return step::waits;
    case channel_progress::ended: has_ended_ = true; return step::moved;
    case channel_progress::failed: return step::failed;
  }
  const std::size_t passed = meter_.pass(std::span<const std::uint8_t>{buffer_}.subspan(end_, count));
  end_ += passed;
  return passed == count ? step::moved : step::refused;
}

guard_pipe::step guard_pipe::give(guard_channel& to) {
  bool moved = false;
  while (held() > 0) {
    std::size_t count = 0;
    const channel_progress got = to.write(std::span<const std::uint8_t>{buffer_}.subspan(begin_, held()), count);
    if (got == channel_progress::blocked) return moved ? step::moved : step::waits;
    if (got != channel_progress::done) return step::failed;
    begin_ += count;
    moved = true;
  }
  begin_ = end_ = 0;
  if (!has_ended_ || is_over_) return moved ? step::moved : step::waits;
  const channel_progress told = to.finish();
  if (told == channel_progress::failed) return step::failed;
  is_over_ = told == channel_progress::done;
  return step::moved;
}

guard_pipe::state guard_pipe::pump(guard_channel& from, guard_channel& to, time_point now) {
  has_more_ = false;
  for (int round = 0; round < pump_rounds; ++round) {
    const step taken = take(from);
    if (taken == step::failed) return state::source_failed;
    const step given = give(to);
    if (given == step::failed) return state::target_failed;
    if (taken == step::refused) return state::bad_frame;
    if (taken == step::moved || given == step::moved) last_progress_ = now;
    if (is_over_) return state::over;
    if (taken == step::waits && given == step::waits) return state::going;
  }
  has_more_ = true;
  return state::going;
}

} // namespace troupe
