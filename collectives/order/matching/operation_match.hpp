/// Defines the operations whose requests wait until all participants have sent theirs.
#pragma once

#include <troupe/collectives/order/absence_report.hpp>
#include <troupe/collectives/order/matching/compact_signature.hpp>
#include <troupe/collectives/order/sequenced.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace troupe {

class lane_table;

/// The reason why an operation was withdrawn, for ranks that request it later.
struct withdrawal {
  std::string text{}; ///< Names the rank that withdrew it.
  std::shared_ptr<absence_report> absence{};
};

/// An operation that waits for participants: a meeting or an exchange.
struct operation_match {
  /// meeting: a collective of all ranks. exchange: sends and receives that are connected.
  enum class form : std::uint8_t { collective_match, exchange };

  explicit operation_match(form what) noexcept : kind{what} {}

  const form kind;
  bool over = true; ///< Released, refused or not in use: no request may join any more.
  bool straggling_reported = false;
  bool differs = false;    ///< A comparison of summaries was not conclusive; the operations must be compared in full.
  std::uint32_t heads = 0; ///< Number of its requests that are at the head of their lane.
  time_point oldest{};     ///< Time of its earliest request.
};

/// The k-th collective of a lane. The ranks' positions in the lane show which requests have joined.
struct alignas(64) collective_match : operation_match {
  collective_match() noexcept : operation_match{form::collective_match} {}

  std::uint64_t index = 0;    ///< The number k.
  compact_signature agreed{}; ///< Signature of the first request.
  lane_table* where = nullptr;
  std::uint32_t come_by = 0;                     ///< Ranks that have requested it; counted only after a withdrawal.
  std::shared_ptr<const withdrawal> withdrawn{}; ///< Set by a withdrawal: the answer for ranks that request it later.
};

struct exchange;

/// One send or recv. It waits for its other half, the matching recv or send.
struct transfer_end {
  exchange* owner = nullptr; ///< Null if withdrawn. The end then stays, to inform its other half.
  transfer_end* partner = nullptr;
  transfer_end* next = nullptr;    ///< The next end on the same route, while this one has no partner.
  transfer_end* sibling = nullptr; ///< The next end of the same request.
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
struct exchange : operation_match {
  exchange() noexcept : operation_match{form::exchange} {}

  lane_table* where = nullptr;
  int self = 0;
  std::uint64_t position = 0;
  transfer_end* ends = nullptr;
  exchange* above = nullptr; ///< Parent towards the root; the root's parent is itself.
  exchange* next = nullptr;  ///< Ring of all exchanges of the closure.
  // Valid in the root only:
  std::size_t size = 0;        ///< Number of exchanges in the closure.
  std::size_t partnerless = 0; ///< Number of ends in the closure whose other half has not been requested.
  std::size_t ranks = 0;       ///< Number of ranks in the closure; known when it is complete.

  [[nodiscard]] exchange& root() noexcept {
    exchange* one = this;
    while (one->above != one) one = one->above = one->above->above;
    return *one;
  }
};

/// Joins the closures of \p one and \p other. Returns the root of the result.
exchange& unite(exchange& one, exchange& other) noexcept;

} // namespace troupe
