/// What a backend can do with the devices at hand, known before anything is asked of it.
#pragma once

#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Something that a library or a device has or lacks.
enum class feature : std::uint8_t {
  fp8_reductions,       ///< Sums and the like of f8e4m3 and f8e5m2.
  multicast,            ///< NVLS: reductions inside NVSwitch.
  buffer_registration,  ///< The user's own buffers are registered, and not copied through the library's.
  symmetric_windows,    ///< Buffers at one offset on every rank, for the fastest kernels.
  copy_engine,          ///< Collectives on copy engines, which leave the multiprocessors to others.
  device_communicators, ///< Kernels of the user's own that communicate.
  gpu_direct_rdma,      ///< Network adapters read and write device memory.
  collnet,              ///< Reductions inside the network's switches (SHARP).
  split,                ///< A communicator made from a part of another's ranks.
  shrink,               ///< A communicator made without some of another's ranks.
  revoke,               ///< A communicator stopped without losing what it has built.
  suspend,              ///< An idle communicator's device memory given back, until it is needed again.
};

inline constexpr feature all_features[] = {feature::fp8_reductions,
                                           feature::multicast,
                                           feature::buffer_registration,
                                           feature::symmetric_windows,
                                           feature::copy_engine,
                                           feature::device_communicators,
                                           feature::gpu_direct_rdma,
                                           feature::collnet,
                                           feature::split,
                                           feature::shrink,
                                           feature::revoke,
                                           feature::suspend};

/// Name of \p what as written above; empty for a value that names no feature.
[[nodiscard]] std::string_view to_string(feature what) noexcept;
/// Errors: invalid_argument, naming those that exist.
[[nodiscard]] feature parse_feature(std::string_view name);

/// Whether something is there.
enum class availability : std::uint8_t {
  no,
  yes,
  unknown, ///< It shows only when it is used.
};

/// Name of \p what as written above.
[[nodiscard]] std::string_view to_string(availability what) noexcept;

/// One feature, and what is known of it.
struct feature_finding {
  feature what{};
  availability available = availability::unknown;
  std::string why; ///< For people: who says so and, where it is not available, what would make it so.

  friend bool operator==(const feature_finding&, const feature_finding&) = default;
};

/// Requests that cannot be done: those of one of \p kinds, of one of \p types and with one of \p ops, in worlds as \p
/// size says. A list that is empty stands for all.
struct exclusion {
  /// Which worlds are meant, by their number of ranks.
  enum class world_size : std::uint8_t { any, one, several };

  std::vector<std::size_t> kinds{}; ///< Indices in troupe::operation.
  std::vector<dtype> types{};
  std::vector<reduction> ops{}; ///< Not empty: reductions alone are meant.
  world_size size = world_size::any;
  std::string why{}; ///< For people, with the remedy.

  friend bool operator==(const exclusion&, const exclusion&) = default;
};

/// One line for people: "all_reduce, reduce of f8e4m3, f8e5m2; any reduction; several ranks: why".
[[nodiscard]] std::string describe(const exclusion& what);
/// Name of \p size as written in exclusion.
[[nodiscard]] std::string_view to_string(exclusion::world_size size) noexcept;

/// What can be asked of a backend on some devices. A value: it does not change when the environment does.
/// Threads: any.
struct capabilities {
  std::string backend; ///< "mock", "nccl" or "gloo".
  std::string version; ///< Of the backend, for people.
  std::vector<feature_finding> features;
  std::vector<exclusion> exclusions;

  /// What is known of \p what; unknown where nobody looked.
  [[nodiscard]] feature_finding find(feature what) const;

  /// Whether the operation of this kind (its index in troupe::operation) can be done with this dtype and, if it
  /// reduces, this reduction, in a world of \p world_size ranks. Groups, copies and replays always can: a
  /// group's parts are asked for one by one, a replay's when it is captured.
  /// Returns errc::none or errc::unsupported; the text names operation, dtype, reduction, reason and remedy.
  [[nodiscard]] error supports(std::size_t kind, dtype type, std::optional<reduction> op, int world_size) const;

  /// The same for a request, or the first part of a group that cannot be done.
  [[nodiscard]] error objection_to(const operation& what, int world_size) const;

  friend bool operator==(const capabilities&, const capabilities&) = default;
};

/// Kinds of operations that combine elements: all_reduce, reduce, reduce_scatter and its v-form.
[[nodiscard]] std::span<const std::size_t> reducing_kinds() noexcept;

/// What follows for requests where \p lacking is not available, for the reason \p why; nothing for most features.
[[nodiscard]] std::vector<exclusion> consequences_of(feature lacking, const std::string& why);

} // namespace troupe
