// Fuzzes the settings' environment variables, except TROUPE_CONFIG, which names a file.
#include "fuzz_target.hpp"
#include "variables.hpp"

#include <troupe/runtime/configuration/gathered_settings.hpp>

using namespace troupe;

TROUPE_FUZZ_TARGET() {
  const auto variables = fuzz::variables_of(text);
  gathered_settings gathered;
  if (!fuzz::taken([&] { gathered.take_environment(fuzz::lookup_in(variables)); })) return;
  for (const setting& one : all_settings()) {
    configuration again;
    one.set(again, one.text(gathered.settings()));
    fuzz::require(one.text(again) == one.text(gathered.settings()), "a formatted setting parses to the same value");
  }
  fuzz::taken([&] { check(gathered.settings()); });
}
