/// Sends and receives of one lane that have no other half yet.
#pragma once

#include <troupe/collectives/order/gathering.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory_resource>
#include <unordered_map>

namespace troupe {

/// On one route, the k-th send matches the k-th recv. Ends without a partner on a route are all of one kind, in order.
class route_table {
public:
  explicit route_table(std::pmr::memory_resource& memory) : routes_{&memory} {}

  /// Removes and returns the oldest other half that waits on the route of \p one. Returns null if there is none; \p one
  /// then waits.
  [[nodiscard]] transfer_end* meet(transfer_end& one);

  /// Calls \p visitor for all waiting ends, in no particular order. The routes must not change meanwhile.
  template <class Visitor>
  void visit(Visitor visitor) {
    for (auto& [where, waiting] : routes_)
      for (transfer_end* one = waiting.first; one != nullptr;) {
        transfer_end* const next = one->next;
        visitor(*one);
        one = next;
      }
  }
  [[nodiscard]] std::size_t size() const noexcept { return routes_.size(); }

private:
  struct route {
    int source;
    int destination;
    int tag;
    friend bool operator==(const route&, const route&) = default;
  };
  struct hash {
    std::size_t operator()(const route& one) const noexcept {
      const auto ranks = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(one.source)) << 32U) |
                         static_cast<std::uint32_t>(one.destination);
      return (ranks * 0x9E3779B97F4A7C15U) ^ (static_cast<std::uint64_t>(static_cast<std::uint32_t>(one.tag)) << 7U);
    }
  };
  struct queue {
    transfer_end* first = nullptr;
    transfer_end* last = nullptr;
  };

  std::pmr::unordered_map<route, queue, hash> routes_; ///< Only routes on which an end waits.
};

} // namespace troupe
