/// What a bench measures in: a runtime, one world and, beside it, raw ranks. Benches that compare settings of the
/// runtime make one rig after the other in every block, so that only one runtime's threads are there at a time.
#pragma once

#include <troupe/program/bench/bench_raw.hpp>
#include <troupe/program/bench/bench_report.hpp>

#include <troupe/runtime/runtime.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

class bench_rig {
public:
  /// The raw ranks rest (raw_ranks::rest()).
  bench_rig(const configuration& settings, bool with_raw, const world_options& options = {});

  runtime rt;
  world where;
  std::optional<raw_ranks> raw;
};

/// Versions and profile, the world, each rank's device, and what lies between the devices.
[[nodiscard]] std::vector<std::string> world_heading(runtime& rt, const world& where);

/// begin_report() with versions, devices, links between them, and every setting.
[[nodiscard]] json begin_world_report(std::string_view bench, const std::vector<std::string>& heading, runtime& rt,
                                      const world& where);

} // namespace troupe::program
