// What processes and their controller say to each other. The first byte says who speaks.
#include "fuzz_target.hpp"

#include <troupe/actors/control/control_codec.hpp>

#include <string>

using namespace troupe;

namespace {

/// What is taken is read the same when it is written again.
template <class Decode>
void check(std::string_view bytes, Decode decode) {
  error why;
  const auto frame = decode(bytes, why);
  if (!frame) return fuzz::require(static_cast<bool>(why) && !why.text.empty(), "a refusal says why");
  const std::string once = encode(*frame);
  const auto again = decode(once, why);
  fuzz::require(again.has_value(), "what was written can be read");
  fuzz::require(encode(*again) == once, "a frame reads back as it was written");
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
