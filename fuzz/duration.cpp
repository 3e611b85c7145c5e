// Fuzzes the parser of durations, e.g. 250ms.
#include "fuzz_target.hpp"

#include <troupe/runtime/configuration/user_input.hpp>

using namespace troupe;

TROUPE_FUZZ_TARGET() {
  std::chrono::nanoseconds span{};
  if (!fuzz::taken([&] { span = parse_duration(text); })) return;
  fuzz::require(span.count() >= 0, "no duration is negative");
  fuzz::require(parse_duration(format_duration(span)) == span, "a formatted duration parses to the same duration");
}
