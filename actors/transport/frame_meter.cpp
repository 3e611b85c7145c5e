#include <troupe/actors/transport/frame_meter.hpp>

#include <algorithm>

namespace troupe {

namespace {

constexpr std::size_t length_read = 8; ///< Number of header bytes after which the length is known.
/// A bit in the first byte of the message id, which follows the length: the message belongs to a stream
/// (caf/message_id.hpp).
constexpr std::uint8_t of_a_stream = 0x20;

} // namespace

void frame_meter::judge_header() noexcept {
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

std::size_t frame_meter::pass(std::span<const std::uint8_t> bytes) noexcept {
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

std::string frame_meter::fault_text() const {
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

} // namespace troupe
