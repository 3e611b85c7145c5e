/// Sets up a measurement: a runtime, one world, optional raw ranks, and memory for many small all_reduces. A bench that
/// compares settings of the runtime makes these objects one after another in every block, so that the threads of only
/// one runtime exist at a time.
#pragma once

#include <troupe/program/bench/frame/raw_ranks.hpp>
#include <troupe/program/bench/frame/report.hpp>

#include <troupe/device/enum_names.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/runtime.hpp>
#include <troupe/runtime/world.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

using troupe::to_string;

class bench_rig {
public:
  /// The raw ranks are parked at first (raw_ranks::rest()).
  bench_rig(const configuration& settings, bool with_raw);

  /// Returns whether this process reports: in a world of processes the one that has rank 0, else every process.
  [[nodiscard]] bool has_rank_zero() const { return where.local_ranks().front() == rank{0}; }

  runtime rt;
  world where;
  std::optional<raw_ranks> raw;
};

/// Returns the lines of a heading: versions and profile, the world, each rank's device, and the links between devices.
[[nodiscard]] std::vector<std::string> world_heading(runtime& rt, const world& where);

/// Calls begin_report() and adds versions, devices, the links between them, and every setting.
[[nodiscard]] json begin_world_report(std::string_view bench, const std::vector<std::string>& heading, runtime& rt,
                                      const world& where);

/// The kind of memory that holds the operands.
enum class operand_memory : std::uint8_t {
  ordinary,   ///< The driver's plain allocation (cuMemAlloc).
  pool,       ///< The ranks' pools, as returned by world::allocate().
  registered, ///< The world's registered memory.
};
inline constexpr auto all_operand_memories = enum_values<operand_memory>;
/// Errors: invalid_argument, whose text names the valid values.
[[nodiscard]] inline operand_memory parse_operand_memory(std::string_view name) {
  return parse_enum<operand_memory>("operand memory", name);
}

/// Allocates \p size_bytes for each local rank. Registers memory with the world if that was not done before.
/// Errors: out_of_memory, unsupported (ordinary memory on a device that is not a GPU).
[[nodiscard]] std::vector<buffer> allocate_operands(world& where, operand_memory kind, std::size_t size_bytes);

/// Returns the memory, in bytes, that one rank needs for \p count operations of \p size_bytes each.
[[nodiscard]] std::size_t sums_bytes(std::size_t size_bytes, std::size_t count) noexcept;
/// Makes \p count in-place all_reduces of f32 with \p size_bytes each: sums[i][r] is rank r's part of the i-th. Each
/// part has its own range of \p memory, which holds sums_bytes() for each rank.
[[nodiscard]] std::vector<std::vector<operation>> make_sums(const std::vector<buffer>& memory, std::size_t size_bytes,
                                                            std::size_t count);

/// Several operations at once: as separate requests, or as one request, which is a group.
class request_burst {
public:
  /// separate[i][r] is local rank r's part of the i-th request, as make_sums() returns them.
  explicit request_burst(std::vector<std::vector<operation>> separate);
  request_burst(const request_burst&) = delete;
  request_burst& operator=(const request_burst&) = delete;
  ~request_burst() = default;

  /// Sends all requests before it waits for the first reply. Returns the time from the first request to the last reply
  /// in microseconds. Requests go to the world or, with \p lanes, to each local rank in its lane.
  [[nodiscard]] double ask(world& where, std::span<rank_lane> lanes, bool together) const;
  /// Returns the time in microseconds that the raw threads need: with one launch of each operation, or of the group.
  [[nodiscard]] double launch(raw_ranks& raw, bool together) const;

private:
  std::vector<std::vector<operation>> separate_;
  std::vector<operation> together_;                      ///< The group of each rank.
  std::vector<std::vector<const operation*>> addresses_; ///< Of the operations in together_.
};

} // namespace troupe::program
