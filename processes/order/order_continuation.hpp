/// How an order goes on in another epoch, whose ranks have changed as planned.
#pragma once

#include <troupe/device/identity.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

struct order_continuation {
  /// For each rank, which one it was in the held epoch, if any. Empty: the order does not go on, but begins anew.
  std::vector<std::optional<rank>> before{};
  /// For each rank of the held epoch, the number of its requests that have succeeded.
  std::vector<std::uint64_t> successes{};

  [[nodiscard]] bool empty() const noexcept { return before.empty(); }
};

} // namespace troupe
