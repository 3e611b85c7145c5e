// Lists of CPUs: 0-15,32.
#include "fuzz_target.hpp"

#include <troupe/device/topology/locality.hpp>

using namespace troupe;

TROUPE_FUZZ_TARGET() {
  cpu_set cpus;
  if (!fuzz::taken([&] { cpus = parse_cpu_set(text); })) return;
  fuzz::require(cpus.size() <= 65536, "no list has more CPUs than a machine");
  fuzz::require(parse_cpu_set(to_string(cpus)) == cpus, "a list reads back as it was written");
}
