// Fuzzes the parsers of the names of dtypes, reductions, backends, profiles, strategies, placements and settings.
#include "fuzz_target.hpp"

#include <troupe/collectives/operation/dtype.hpp>
#include <troupe/collectives/operation/reduction.hpp>
#include <troupe/runtime/configuration/settings.hpp>

using namespace troupe;

namespace {

template <auto Parse>
void check_name(std::string_view text) {
  fuzz::taken([&] { fuzz::require(to_string(Parse(text)) == text, "a parsed value has the given name"); });
}

} // namespace

TROUPE_FUZZ_TARGET() {
  check_name<parse_dtype>(text);
  check_name<parse_reduction>(text);
  check_name<parse_backend_choice>(text);
  check_name<parse_latency_profile>(text);
  check_name<parse_completion_strategy>(text);
  check_name<parse_thread_placement>(text);
  fuzz::taken([&] { fuzz::require(find_setting(text).name == text, "a found setting has the given name"); });
}
