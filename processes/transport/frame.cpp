#include <troupe/processes/transport/frame.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

constexpr std::array<char, 3> frame_prefix{'T', 'R', 2};
constexpr std::size_t at_kind = 3, at_length = 4;

/// Returns the length that a frame of the preamble must have; 0 for another kind.
std::uint32_t preamble_length(std::uint8_t kind) noexcept {
  switch (static_cast<frame_kind>(kind)) {
    case frame_kind::greeting: return join_greeting_bytes;
    case frame_kind::claim: return join_claim_bytes;
    case frame_kind::answer: return join_answer_bytes;
    case frame_kind::message: break;
  }
  return 0;
}

} // namespace

std::string encode_frame(frame_kind kind, std::string_view payload) {
  std::string made{frame_prefix.begin(), frame_prefix.end()};
  made.reserve(frame_header_bytes + payload.size());
  made += static_cast<char>(kind);
  for (const unsigned shift : {24U, 16U, 8U, 0U}) made += static_cast<char>(payload.size() >> shift & 0xffU);
  made += payload;
  return made;
}

void frame_parser::accept_messages(std::uint32_t longest) noexcept {
  longest_ = longest;
}

/// Checks each byte of the header as soon as it has arrived.
void frame_parser::check_header() noexcept {
  const std::size_t last = header_count_ - 1;
  if (last < frame_prefix.size()) {
    if (header_.at(last) != frame_prefix.at(last)) fault_ = fault::prefix;
  } else if (last == at_kind) {
    const std::uint8_t kind = header_byte(at_kind);
    const bool is_message = kind == static_cast<std::uint8_t>(frame_kind::message);
    if (longest_ > 0 ? !is_message : preamble_length(kind) == 0) fault_ = fault::kind;
  } else if (header_count_ == frame_header_bytes) {
    payload_length_ = 0;
    for (std::size_t i = at_length; i < frame_header_bytes; ++i)
      payload_length_ = payload_length_ << 8U | header_byte(i);
    if (longest_ > 0 ? payload_length_ > longest_ : payload_length_ != preamble_length(header_byte(at_kind)))
      fault_ = fault::length;
    else if (payload_length_ == 0)
      fault_ = fault::no_payload;
  }
}

std::size_t frame_parser::receive(std::string_view bytes, std::optional<frame>& complete) {
  std::size_t consumed = 0;
  while (consumed < bytes.size() && !has_fault()) {
    if (header_count_ < frame_header_bytes) {
      header_.at(header_count_++) = bytes[consumed];
      check_header();
      if (!has_fault()) ++consumed;
      continue;
    }
    const std::size_t step = std::min<std::size_t>(payload_length_ - payload_.size(), bytes.size() - consumed);
    payload_.append(bytes, consumed, step);
    consumed += step;
    if (payload_.size() < payload_length_) break;
    complete = frame{static_cast<frame_kind>(header_byte(at_kind)), std::exchange(payload_, {})};
    header_count_ = 0;
    break;
  }
  return consumed;
}

std::string frame_parser::fault_text() const {
  switch (fault_) {
    case fault::none: break;
    case fault::prefix: return "sent something that is not a frame of troupe";
    case fault::kind: return "sent a frame of a kind that is not allowed here";
    case fault::no_payload: return "sent a frame without its payload";
    case fault::length:
      return "sent a frame of " + std::to_string(payload_length_) + " bytes, and the limit is " +
             std::to_string(longest_);
  }
  return {};
}

} // namespace troupe
