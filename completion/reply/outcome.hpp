/// The outcome of a request: either a completion or an error, never both (ONE-1).
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe {

/// The times at which a request passed its stages, on the process's steady clock. For a request to a whole world:
/// `queued` of the first rank, `launched` and `done` of the last rank.
struct times {
  time_point queued;   ///< Accepted by its actor.
  time_point launched; ///< Enqueued on the GPU.
  time_point done;     ///< Observed by the poller as done.
};

/// The value of an agree (operation.hpp), which is the same at all ranks. It does not change.
struct agreed_value {
  troupe::epoch epoch{}; ///< The epoch in which it was agreed on.
  /// The position of the agree in its lane: the number of operations that were released there before it, counted as in
  /// the resume points that follow the epoch (resume_point).
  std::uint64_t position = 0;
  std::vector<std::byte> bytes{}; ///< At most most_agreed_bytes.
  /// For agreement_rule::gather_all: the size of each rank's part of `bytes`, in rank order. Else empty.
  std::vector<std::uint32_t> part_sizes{};

  /// Returns the bytes as text.
  [[nodiscard]] std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  /// Returns the bytes as 64-bit integers. Trailing bytes that are not a whole integer are left out.
  [[nodiscard]] std::vector<std::int64_t> integers() const {
    std::vector<std::int64_t> all(bytes.size() / sizeof(std::int64_t));
    if (!all.empty()) std::memcpy(all.data(), bytes.data(), all.size() * sizeof(std::int64_t));
    return all;
  }
  /// Returns the first 64-bit integer; 0 if there is none.
  [[nodiscard]] std::int64_t integer() const noexcept {
    std::int64_t first = 0;
    if (bytes.size() >= sizeof first) std::memcpy(&first, bytes.data(), sizeof first);
    return first;
  }
  /// Returns the ranks' contributions to a gather_all, in rank order. Lifetime: that of this object.
  [[nodiscard]] std::vector<std::span<const std::byte>> parts() const {
    std::vector<std::span<const std::byte>> all;
    std::span<const std::byte> rest{bytes};
    for (const std::uint32_t size : part_sizes) { // a value that a client makes may have any sizes
      all.push_back(rest.first(std::min<std::size_t>(size, rest.size())));
      rest = rest.subspan(all.back().size());
    }
    return all;
  }

  friend bool operator==(const agreed_value&, const agreed_value&) = default;
};

/// The reply to a successful request: the GPU is done and the results may be used.
struct completion {
  troupe::ticket ticket;
  troupe::epoch epoch;
  troupe::times times;
  /// The position in the order of its rank's launches, from 1. Requests launched together have the same position. 0 in
  /// the reply to a request to a whole world.
  std::uint64_t launch = 0;
  /// The value of an agree; null in replies to other requests. Ranks of one process share it.
  std::shared_ptr<const agreed_value> agreed{};
};

using outcome = std::variant<completion, error>;

/// Returns the error of \p result, or nullptr if it succeeded.
[[nodiscard]] inline const error* failure_of(const outcome& result) noexcept {
  return std::get_if<error>(&result);
}

} // namespace troupe
