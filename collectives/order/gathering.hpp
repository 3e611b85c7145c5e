/// What requests wait in until all whom they concern have come.
#pragma once

#include <troupe/collectives/order/absence_report.hpp>
#include <troupe/collectives/order/compact_signature.hpp>
#include <troupe/collectives/order/sequenced.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace troupe {

class lane_table;

/// Why an operation will not be, for those who come to it later.
struct withdrawal {
  std::string text{}; ///< Names the rank that went.
  std::shared_ptr<absence_report> absence{};
};

/// A meeting or an exchange.
struct gathering {
  /// A collective of all ranks, or what sends and receives lead to.
  enum class form : std::uint8_t { meeting, exchange };

  explicit gathering(form what) noexcept : kind{what} {}

  const form kind;
  bool over = true; ///< Released, refused or not in use: nobody may still be counted in.
  bool straggling_told = false;
  bool differs = false;    ///< Not all that was compared on the way was equal: to be checked in full.
  std::uint32_t heads = 0; ///< Of its requests, those at the head of their lane.
  time_point oldest{};     ///< When the first of its requests was asked.
};

/// The k-th collective of a lane. Which requests joined is known by the ranks' places in the lane.
struct alignas(64) meeting : gathering {
  meeting() noexcept : gathering{form::meeting} {}

  std::uint64_t index = 0;    ///< k.
  compact_signature agreed{}; ///< What its first request asks.
  lane_table* where = nullptr;
  std::uint32_t come_by = 0;                     ///< Counted once it is withdrawn.
  std::shared_ptr<const withdrawal> withdrawn{}; ///< Ranks that come now are told.
};

struct exchange;

/// One send or recv, on its way to its other half.
struct transfer_end {
  exchange* owner = nullptr; ///< None: withdrawn, and waits for its other half to tell it.
  transfer_end* partner = nullptr;
  transfer_end* next = nullptr;    ///< On the same route, as long as there is no partner.
  transfer_end* sibling = nullptr; ///< In the same request.
  bool is_send = false;
  int source = 0;
  int destination = 0;
  int tag = 0;
  std::size_t count = 0;
  dtype type{};
  std::shared_ptr<const withdrawal> withdrawn{};
};

/// One request of sends and receives. Exchanges that share a transfer are released together, and so are those that
/// these share transfers with: they are in one closure, of which one exchange is the root and keeps the account.
struct exchange : gathering {
  exchange() noexcept : gathering{form::exchange} {}

  lane_table* where = nullptr;
  int self = 0;
  std::uint64_t position = 0;
  transfer_end* ends = nullptr;
  exchange* above = nullptr; ///< Towards the root, which is above itself.
  exchange* next = nullptr;  ///< All of the closure, in a ring.
  // Of the root:
  std::size_t size = 0;        ///< Exchanges in the closure.
  std::size_t partnerless = 0; ///< Ends in the closure whose other half has not come.
  std::size_t ranks = 0;       ///< That the closure spans; known when it is complete.

  [[nodiscard]] exchange& root() noexcept {
    exchange* one = this;
    while (one->above != one) one = one->above = one->above->above;
    return *one;
  }
};

/// Makes one closure of those of \p one and \p other. Returns its root.
exchange& unite(exchange& one, exchange& other) noexcept;

} // namespace troupe
