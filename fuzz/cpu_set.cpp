// Fuzzes the parser of CPU lists, e.g. 0-15,32.
#include "fuzz_target.hpp"

#include <troupe/device/topology/locality.hpp>

using namespace troupe;

TROUPE_FUZZ_TARGET() {
  cpu_set cpus;
  if (!fuzz::taken([&] { cpus = parse_cpu_set(text); })) return;
  fuzz::require(cpus.size() <= 65536, "a list has at most 65536 CPUs");
  fuzz::require(parse_cpu_set(to_string(cpus)) == cpus, "a formatted list parses to the same list");
}
