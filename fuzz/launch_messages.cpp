// Fuzzes the decoders of the lines between troupe launch and its agents on other hosts.
#include "fuzz_target.hpp"

#include <troupe/runtime/launch/host_agent.hpp>

#include <string>

using namespace troupe;

namespace {

template <class Decode>
void check(std::string_view line, Decode decode) {
  std::string once;
  try {
    once = launch::encode(decode(line));
  } catch (const exception& refusal) {
    fuzz::require(refusal.why().code == errc::mismatch || refusal.why().code == errc::invalid_argument,
                  "a decoder refuses with mismatch or invalid_argument");
    fuzz::require(!refusal.why().text.empty(), "a refusal says why");
    return;
  }
  fuzz::require(once.find('\n') == std::string::npos, "a message is one line");
  fuzz::require(launch::encode(decode(once)) == once, "decoding an encoded message gives the same message");
}

} // namespace

TROUPE_FUZZ_TARGET() {
  check(text, launch::decode_command);
  check(text, launch::decode_report);
}
