// Fuzzes the parser of whole numbers.
#include "fuzz_target.hpp"

#include <troupe/runtime/configuration/user_input.hpp>

#include <string>

using namespace troupe;

TROUPE_FUZZ_TARGET() {
  const auto number = parse_whole_number(text);
  if (!number) return;
  const std::string written = std::to_string(*number);
  fuzz::require(text.ends_with(written), "the digits of the number end the text");
  fuzz::require(text.substr(0, text.size() - written.size()).find_first_not_of('0') == std::string_view::npos,
                "only zeros precede the digits");
}
