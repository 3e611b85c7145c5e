// Fuzzes the decoders of the frames between processes and their controller. The first byte selects the direction.
#include "fuzz_target.hpp"

#include <troupe/processes/control/control_codec.hpp>

#include <string>

using namespace troupe;

namespace {

/// Checks that an accepted frame survives encoding and decoding, and that a refusal has a text.
template <class Decode>
void check(std::string_view bytes, Decode decode) {
  error why;
  const auto frame = decode(bytes, why);
  if (!frame) return fuzz::require(static_cast<bool>(why) && !why.text.empty(), "a refusal says why");
  const std::string once = encode(*frame);
  const auto again = decode(once, why);
  fuzz::require(again.has_value(), "an encoded frame can be decoded");
  fuzz::require(encode(*again) == once, "decoding an encoded frame gives the same frame");
}

} // namespace

TROUPE_FUZZ_TARGET() {
  if (text.empty()) return;
  const std::string_view bytes = text.substr(1);
  if ((text.front() & 1) == 0)
    check(bytes, decode_process_frame);
  else
    check(bytes, decode_controller_frame);
}
