#include <troupe/actors/guard/frame_meter.hpp>

#include <algorithm>

namespace troupe {

void frame_meter::judge_header() noexcept {
  if (head_[0] > last_operation) {
    fault_ = fault::unknown_operation;
  } else if (header_count_ == head_.size()) {
    payload_left_ = static_cast<std::uint32_t>(head_[4]) << 24 | static_cast<std::uint32_t>(head_[5]) << 16 |
                    static_cast<std::uint32_t>(head_[6]) << 8 | static_cast<std::uint32_t>(head_[7]);
    if (payload_left_ > longest_) fault_ = fault::length;
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
    if (header_count_ == header_bytes && payload_left_ == 0) header_count_ = 0; // the next frame's
  }
  return passed;
}

std::string frame_meter::fault_text() const {
  switch (fault_) {
    case fault::none: break;
    case fault::unknown_operation: return "sent something that is no BASP frame";
    case fault::length:
      return "sent a frame of " + std::to_string(payload_left_) + " bytes, where at most " + std::to_string(longest_) +
             " are taken";
  }
  return {};
}

} // namespace troupe
