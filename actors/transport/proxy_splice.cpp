#include <troupe/actors/transport/proxy_splice.hpp>

#include <algorithm>

namespace troupe {

namespace {

constexpr std::size_t length_read = 8; ///< Number of header bytes after which the length is known.
/// A bit in the first byte of the message id, which follows the length: the message belongs to a stream
/// (caf/message_id.hpp).
constexpr std::uint8_t of_a_stream = 0x20;

} // namespace

void frame_validator::judge_header() noexcept {
  const std::uint8_t kind = head_[0];
  if (kind > heartbeat || kind == routed_message) {
    fault_ = fault::kind;
  } else if (header_count_ == length_read) {
    payload_left_ = static_cast<std::uint32_t>(head_[4]) << 24 | static_cast<std::uint32_t>(head_[5]) << 16 |
                    static_cast<std::uint32_t>(head_[6]) << 8 | static_cast<std::uint32_t>(head_[7]);
    if (payload_left_ > longest_)
      fault_ = fault::length;
    else if ((payload_left_ == 0) != (kind == heartbeat))
      fault_ = fault::emptiness;
  } else if (header_count_ == head_.size() && kind == direct_message && (head_[length_read] & of_a_stream) != 0) {
    fault_ = fault::stream;
  }
}

std::size_t frame_validator::pass(std::span<const std::uint8_t> bytes) noexcept {
  std::size_t passed = 0;
  while (passed < bytes.size() && !has_fault()) {
    if (header_count_ < head_.size()) {
      head_[header_count_++] = bytes[passed];
      judge_header();
      if (has_fault()) break;
      ++passed;
    } else if (header_count_ < header_bytes) {
      const std::size_t step = std::min(header_bytes - header_count_, bytes.size() - passed);
      header_count_ += step;
      passed += step;
    } else {
      const std::size_t step = std::min<std::size_t>(payload_left_, bytes.size() - passed);
      payload_left_ -= static_cast<std::uint32_t>(step);
      passed += step;
    }
    if (header_count_ == header_bytes && payload_left_ == 0) header_count_ = 0; // the next frame starts
  }
  return passed;
}

std::string frame_validator::fault_text() const {
  switch (fault_) {
    case fault::none: break;
    case fault::kind: return "sent something that is not a BASP frame, or a routed frame";
    case fault::stream: return "sent a message of a stream";
    case fault::emptiness:
      return payload_left_ == 0 ? "sent a frame without its payload" : "sent a heartbeat that has a payload";
    case fault::length:
      return "sent a frame of " + std::to_string(payload_left_) + " bytes, and the limit is " +
             std::to_string(longest_);
  }
  return {};
}

namespace {

constexpr int pump_rounds = 4; ///< Maximum number of rounds per call of pump().
constexpr std::size_t least_buffer_bytes = 1u << 10;

} // namespace

proxy_pipe::proxy_pipe(std::size_t buffer_bytes, std::uint32_t longest_frame, time_point now)
  : buffer_(std::max(buffer_bytes, least_buffer_bytes)), meter_{longest_frame}, last_progress_{now} {}

proxy_pipe::step proxy_pipe::take(proxy_channel& from) {
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

proxy_pipe::step proxy_pipe::give(proxy_channel& to) {
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

proxy_pipe::state proxy_pipe::pump(proxy_channel& from, proxy_channel& to, time_point now) {
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

namespace {

void gather_one(const proxy_channel& channel, bool wants_read, bool wants_write, std::vector<pollfd>& into) {
  const int events = (wants_read ? channel.read_events() : 0) | (wants_write ? channel.write_events() : 0);
  if (events != 0) into.push_back({channel.descriptor(), static_cast<short>(events), 0});
}

} // namespace

proxy_splice::proxy_splice(const proxy_limits& limits, time_point now)
  : limits_{limits},
    inward_{limits.buffer_bytes, limits.frame_bytes, now},
    outward_{limits.buffer_bytes, limits.frame_bytes, now} {}

void proxy_splice::blame(bool outside, proxy_fault why) {
  if (fault_) return;
  is_outside_ = outside;
  fault_ = std::move(why);
}

void proxy_splice::judge(proxy_pipe::state state, const proxy_pipe& pipe, const proxy_channel& source,
                         const proxy_channel& target) {
  const bool from_outside = &pipe == &inward_;
  switch (state) {
    case proxy_pipe::state::going:
    case proxy_pipe::state::over: return;
    case proxy_pipe::state::source_failed: return blame(from_outside, source.fault());
    case proxy_pipe::state::target_failed: return blame(!from_outside, target.fault());
    case proxy_pipe::state::bad_frame: return blame(from_outside, {proxy_event_kind::bad_frame, pipe.frame_text()});
  }
}

void proxy_splice::advance(proxy_channel& outside, proxy_channel& inside, time_point now) {
  if (!inward_.is_over()) judge(inward_.pump(outside, inside, now), inward_, outside, inside);
  if (fault_) return;
  if (!outward_.is_over()) judge(outward_.pump(inside, outside, now), outward_, inside, outside);
  if (fault_) return;
  is_over_ = inward_.is_over() && outward_.is_over();
  if (is_over_ || now < due()) return;
  for (const proxy_pipe* pipe : {&inward_, &outward_}) {
    if (!pipe->is_stuck() || now < later(pipe->last_progress(), limits_.stall)) continue;
    // Bytes that are not read are their reader's fault; an incomplete frame is its writer's fault.
    blame((pipe == &inward_) != pipe->wants_write(),
          {proxy_event_kind::broken, "transferred nothing for " + std::to_string(limits_.stall.count()) + " ms"});
    return;
  }
  is_over_ = inward_.has_ended() || outward_.has_ended();
}

void proxy_splice::gather(const proxy_channel& outside, const proxy_channel& inside, std::vector<pollfd>& into) const {
  gather_one(outside, inward_.wants_read(), outward_.wants_write(), into);
  gather_one(inside, outward_.wants_read(), inward_.wants_write(), into);
}

time_point proxy_splice::due() const noexcept {
  time_point first = time_point::max();
  for (const proxy_pipe* pipe : {&inward_, &outward_})
    if (pipe->is_stuck()) first = std::min(first, later(pipe->last_progress(), limits_.stall));
  if (inward_.has_ended() || outward_.has_ended())
    first = std::min(first, later(std::max(inward_.last_progress(), outward_.last_progress()), limits_.closing));
  return first;
}

} // namespace troupe
