// Fuzzes the reader of a launcher's environment variables.
#include "fuzz_target.hpp"
#include "variables.hpp"

#include <troupe/runtime/configuration/launch_environment.hpp>

using namespace troupe;

TROUPE_FUZZ_TARGET() {
  const auto variables = fuzz::variables_of(text);
  fuzz::taken([&] {
    const auto position = find_position(fuzz::lookup_in(variables));
    if (!position) return;
    fuzz::require(position->rank >= 0 && position->local_rank >= 0 && position->world_size >= 1,
                  "numbers are in range");
    fuzz::require(position->launcher != process_launcher::none, "a position names its launcher");
  });
}
