// Fuzzes the parser of sizes in bytes, e.g. 32K.
#include "fuzz_target.hpp"

#include <troupe/runtime/configuration/user_input.hpp>

using namespace troupe;

TROUPE_FUZZ_TARGET() {
  std::size_t bytes = 0;
  if (!fuzz::taken([&] { bytes = parse_byte_size(text); })) return;
  fuzz::require(parse_byte_size(format_byte_size(bytes)) == bytes, "a formatted size parses to the same size");
}
