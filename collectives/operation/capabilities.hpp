/// Describes which operations a backend supports on given devices, so that a request can be refused before any work
/// starts.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/enum_names.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A capability of a library or a device.
enum class feature : std::uint8_t {
  fp8_reductions, ///< Reductions of f8e4m3 and f8e5m2.
  multicast,      ///< NVLS: reductions inside NVSwitch.
  /// User buffers can be registered, so that the library does not copy them through its own buffers.
  buffer_registration,
  symmetric_windows,    ///< Buffers at the same offset on every rank, which the fastest kernels require.
  copy_engine,          ///< Collectives on copy engines, which leave the multiprocessors free.
  device_communicators, ///< User kernels that communicate.
  gpu_direct_rdma,      ///< Network adapters read and write device memory directly.
  collnet,              ///< Reductions inside the network's switches (SHARP).
  split,                ///< A new communicator from a subset of another communicator's ranks.
  shrink,               ///< A new communicator that excludes some of another communicator's ranks.
  revoke,               ///< Stopping a communicator while keeping the resources it has built.
  suspend,              ///< Releasing an idle communicator's device memory until it is needed again.
};

inline constexpr auto all_features = enum_values<feature>;
/// Returns the feature with this name. Errors: invalid_argument, which lists the known names.
[[nodiscard]] inline feature parse_feature(std::string_view name) {
  return parse_enum<feature>("feature", name);
}

/// Whether a feature is available.
enum class availability : std::uint8_t {
  no,
  yes,
  unknown, ///< Known only after an attempt to use the feature.
};

/// A feature and its availability.
struct feature_finding {
  feature what{};
  availability available = availability::unknown;
  /// For people: the source of the finding and, if the feature is not available, what would make it available.
  std::string why;

  friend bool operator==(const feature_finding&, const feature_finding&) = default;
};

/// A set of unsupported requests: the operation is in \p kinds, its dtype in \p types, its reduction in \p ops, and the
/// world matches \p size. An empty list matches everything.
struct exclusion {
  /// Selects worlds by their number of ranks.
  enum class world_size : std::uint8_t { any, one, several };

  std::vector<std::size_t> kinds{}; ///< Indices of alternatives of troupe::operation.
  std::vector<dtype> types{};
  std::vector<reduction> ops{}; ///< If not empty, only reductions match.
  world_size size = world_size::any;
  std::string why{}; ///< For people, with the remedy.

  friend bool operator==(const exclusion&, const exclusion&) = default;
};

/// Returns one line for people: "all_reduce, reduce of f8e4m3, f8e5m2; in worlds of several ranks: why".
[[nodiscard]] std::string describe(const exclusion& what);

/// The capabilities of a backend on given devices. The value does not follow later changes of the environment.
/// Threads: any.
struct capabilities {
  std::string backend; ///< "mock", "nccl" or "gloo".
  std::string version; ///< Version of the backend, for people.
  std::vector<feature_finding> features;
  std::vector<exclusion> exclusions;

  /// Returns the finding for \p what. The availability is unknown if nothing was recorded.
  [[nodiscard]] feature_finding find(feature what) const;

  /// Checks whether this kind of operation (its index in troupe::operation) is supported with this dtype and, if it
  /// reduces, this reduction, in a world of \p world_size ranks. Groups, copies and replays themselves are always
  /// supported: the parts of a group are checked one by one, the requests of a replay when they are captured.
  /// Returns errc::none or errc::unsupported. The text names operation, dtype, reduction, reason and remedy.
  [[nodiscard]] error supports(std::size_t kind, dtype type, std::optional<reduction> op, int world_size) const;

  /// Checks a request in the same way. For a group, returns the error of the first unsupported part.
  [[nodiscard]] error objection_to(const operation& what, int world_size) const;

  friend bool operator==(const capabilities&, const capabilities&) = default;
};

/// What a world's communicators have of one-shot kernels (docs/small-collectives.md). Fixed when they form; the same at
/// all ranks. Without kernels all sizes are 0.
struct one_shot_status {
  std::size_t part_bytes = 0; ///< The most bytes from one rank to another in an operation that is a kernel.
  unsigned blocks = 0;        ///< The most thread blocks of one kernel.
  /// Device memory that each rank holds for it, outside of the pools. Kept while the world is suspended.
  std::size_t scratch_bytes = 0;
  std::string why{}; ///< For people: why there are no kernels. Empty if there are.

  friend bool operator==(const one_shot_status&, const one_shot_status&) = default;
};

/// Returns for people, for example, "one-shot kernels up to 4096 B, 128 blocks" or "no one-shot kernels (why)".
[[nodiscard]] std::string describe(const one_shot_status& one);

/// Returns the kinds of operations that combine elements: all_reduce, reduce, reduce_scatter and reduce_scatter_v.
[[nodiscard]] std::span<const std::size_t> reducing_kinds() noexcept;

/// Returns the requests that are unsupported if \p lacking is not available, for the reason \p why. For most features
/// the result is empty.
[[nodiscard]] std::vector<exclusion> consequences_of(feature lacking, const std::string& why);

} // namespace troupe
