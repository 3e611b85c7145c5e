/// The operations in which requests wait until all participants have asked.
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

/// Why an operation was withdrawn, for ranks that ask for it later.
struct withdrawal {
  std::string text{}; ///< Names the rank that withdrew it.
  std::shared_ptr<absence_report> absence{};
};

/// An operation that waits for participants: a meeting or an exchange.
struct gathering {
  /// meeting: a collective of all ranks. exchange: sends and receives that are connected.
  enum class form : std::uint8_t { meeting, exchange };

  explicit gathering(form what) noexcept : kind{what} {}

  const form kind;
  bool over = true; ///< Released, refused or not in use: no request may join any more.
  bool straggling_told = false;
  bool differs = false;    ///< A comparison of summaries was not conclusive; the operations must be compared in full.
  std::uint32_t heads = 0; ///< Number of its requests that are at the head of their lane.
  time_point oldest{};     ///< Time at which the first of its requests was asked.
};

/// The k-th collective of a lane. The ranks' positions in the lane tell which requests have joined.
struct alignas(64) meeting : gathering {
  meeting() noexcept : gathering{form::meeting} {}

  std::uint64_t index = 0;    ///< The number k.
  compact_signature agreed{}; ///< Signature of the first request.
  lane_table* where = nullptr;
  std::uint32_t come_by = 0;                     ///< Ranks that have asked; counted only after it was withdrawn.
  std::shared_ptr<const withdrawal> withdrawn{}; ///< Set if withdrawn: the answer for ranks that ask later.
};

struct exchange;

/// One send or recv that waits for its other half.
struct transfer_end {
  exchange* owner = nullptr; ///< Null: withdrawn; it stays to inform its other half.
  transfer_end* partner = nullptr;
  transfer_end* next = nullptr;    ///< On the same route, while it has no partner.
  transfer_end* sibling = nullptr; ///< In the same request.
  bool is_send = false;
  int source = 0;
  int destination = 0;
  int tag = 0;
  std::size_t count = 0;
  dtype type{};
  std::shared_ptr<const withdrawal> withdrawn{};
};

/// One request of sends and receives. Exchanges that share a transfer are released together, and this is transitive:
/// they form one closure. One exchange is the root of the closure and has its counters.
struct exchange : gathering {
  exchange() noexcept : gathering{form::exchange} {}

  lane_table* where = nullptr;
  int self = 0;
  std::uint64_t position = 0;
  transfer_end* ends = nullptr;
  exchange* above = nullptr; ///< Parent towards the root; the root's parent is itself.
  exchange* next = nullptr;  ///< Ring of all exchanges of the closure.
  // Valid in the root only:
  std::size_t size = 0;        ///< Exchanges in the closure.
  std::size_t partnerless = 0; ///< Ends in the closure whose other half was not asked yet.
  std::size_t ranks = 0;       ///< Ranks in the closure; known when it is complete.

  [[nodiscard]] exchange& root() noexcept {
    exchange* one = this;
    while (one->above != one) one = one->above = one->above->above;
    return *one;
  }
};

/// Joins the closures of \p one and \p other. Returns the root of the result.
exchange& unite(exchange& one, exchange& other) noexcept;

} // namespace troupe
