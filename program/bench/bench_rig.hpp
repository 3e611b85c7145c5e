/// The environment of a measurement: a runtime, one world and, optionally, raw ranks. A bench that compares settings of
/// the runtime makes these objects one after another in every block, so that the threads of only one runtime exist at a
/// time.
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
  /// The raw ranks are parked at first (raw_ranks::rest()).
  bench_rig(const configuration& settings, bool with_raw, const world_options& options = {});

  runtime rt;
  world where;
  std::optional<raw_ranks> raw;
};

/// Returns the lines of a heading: versions and profile, the world, each rank's device, and the links between devices.
[[nodiscard]] std::vector<std::string> world_heading(runtime& rt, const world& where);

/// Calls begin_report() and adds versions, devices, the links between them, and every setting.
[[nodiscard]] json begin_world_report(std::string_view bench, const std::vector<std::string>& heading, runtime& rt,
                                      const world& where);

} // namespace troupe::program
