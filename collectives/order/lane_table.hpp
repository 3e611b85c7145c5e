/// One lane of one world: each rank's requests in order, and the matches in which they wait for their peers.
#pragma once

#include <troupe/collectives/operation/compact_signature.hpp>
#include <troupe/collectives/order/sequenced.hpp>
#include <troupe/collectives/progress/absence_report.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <string>
#include <unordered_map>
#include <vector>

namespace troupe {

class lane_table;

/// The reason why an operation was withdrawn, for ranks that request it later.
struct withdrawal {
  std::string text{}; ///< Names the rank that withdrew it.
  std::shared_ptr<absence_report> absence{};
  error common{}; ///< The error of all ranks, if the operation is one that is refused at all with one error.
};

/// An operation that waits for participants: a collective or an exchange.
struct operation_match {
  /// collective_match: a collective of all ranks. exchange: sends and receives that are connected.
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
  bool has_agree = false;     ///< One of the requests is an agree.
  lane_table* where = nullptr;
  std::uint32_t come_by = 0; ///< Number of ranks that have requested it. Set only after a withdrawal.
  std::shared_ptr<const withdrawal> withdrawn{}; ///< If withdrawn: the answer to ranks that request it later.
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
  std::size_t ranks = 0;       ///< Number of ranks in the closure; 0 until it is complete.

  [[nodiscard]] exchange& root() noexcept {
    exchange* one = this;
    while (one->above != one) one = one->above = one->above->above;
    return *one;
  }
};

/// Joins the closures of \p one and \p other. Returns the root of the result.
exchange& unite(exchange& one, exchange& other) noexcept;

/// Matches sends with recvs. On one route, the k-th send matches the k-th recv. The ends that wait on a route are
/// therefore all sends or all recvs, oldest first.
class route_table {
public:
  explicit route_table(std::pmr::memory_resource& memory) : routes_{&memory} {}

  /// Matches \p one: removes and returns the oldest other half that waits on its route. If there is none, adds \p one
  /// to the route and returns null.
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

  std::pmr::unordered_map<route, queue, hash> routes_; ///< The routes on which a send or a recv waits.
};

/// A pool of nodes. Its memory grows to the maximum number of nodes in use at one time and is released only with the
/// pool. take() returns a node in the state in which put_back() received it.
template <class Node>
class node_pool {
public:
  [[nodiscard]] Node* take() {
    if (free_.empty()) grow();
    Node* const one = free_.back();
    free_.pop_back();
    return one;
  }
  /// Does not allocate, because each node was in the list before.
  void put_back(Node* one) noexcept { free_.push_back(one); }

private:
  static constexpr std::size_t chunk = 64;

  void grow() {
    free_.reserve((chunks_.size() + 1) * chunk);
    chunks_.push_back(std::make_unique<Node[]>(chunk));
    for (std::size_t i = chunk; i-- > 0;) free_.push_back(&chunks_.back()[i]);
  }

  std::vector<std::unique_ptr<Node[]>> chunks_;
  std::vector<Node*> free_;
};

/// A position in a rank's lane.
struct lane_slot {
  sequenced* one = nullptr;         ///< Owned; null if it was refused and is to be skipped.
  operation_match* where = nullptr; ///< Null if the request needs no other rank.
};

/// One rank's requests in one lane. They are in a ring indexed by position, so that consecutive requests are adjacent
/// in memory.
class alignas(64) lane_queue {
public:
  std::uint64_t collectives = 0; ///< Number of collectives that the rank has requested in this lane.
  std::uint64_t owner = 0;       ///< The client that owns the lane; 0: none.
  std::uint32_t withdrawn = 0;   ///< Withdrawn requests of the rank that are remembered for peers.

  /// Returns the number of positions in use, including those of removed requests and of withdrawn requests that are
  /// remembered for peers.
  [[nodiscard]] std::uint64_t extent() const noexcept { return next_ - head_ + withdrawn; }
  [[nodiscard]] bool empty() const noexcept { return head_ == next_; }
  [[nodiscard]] std::uint64_t head() const noexcept { return head_; }
  /// Returns the position of the next request.
  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }
  /// A position before head() is empty until the ring is used again for later ones.
  [[nodiscard]] lane_slot& at(std::uint64_t position) noexcept { return ring_[position & (capacity_ - 1)]; }
  [[nodiscard]] lane_slot& front() noexcept { return at(head_); }
  void fetch_front() const noexcept { __builtin_prefetch(ring_.get() + (head_ & (capacity_ - 1))); }

  void push(lane_slot what) {
    if (next_ - head_ == capacity_) grow();
    at(next_) = what;
    ++next_;
  }
  /// Adds an empty position, for a refused request.
  void push_refused() {
    if (!empty()) return push({});
    ++head_;
    ++next_;
  }
  /// Makes \p position that of the first request. Call it before that.
  void begin_at(std::uint64_t position) noexcept { head_ = next_ = position; }
  /// Moves the head past empty positions.
  void skip_empty() noexcept {
    while (head_ != next_ && at(head_).one == nullptr) ++head_;
  }

private:
  void grow();

  std::uint64_t head_ = 0;
  std::uint64_t next_ = 0;
  std::unique_ptr<lane_slot[]> ring_;
  std::uint32_t capacity_ = 0; ///< A power of two; 0 before the first use.
};

/// The contents of one lane of one world.
class lane_table {
public:
  lane_table(std::uint32_t world_number, lane name, int size, std::pmr::memory_resource& memory);
  ~lane_table();
  lane_table(const lane_table&) = delete;
  lane_table& operator=(const lane_table&) = delete;

  const std::uint32_t world;
  const lane name;
  std::vector<lane_queue> queues; ///< Indexed by rank.
  route_table routes;
  time_point due = time_point::max(); ///< No request in this lane is due before this time.

  /// Returns the match with this number. Creates it if no rank has requested it yet.
  [[nodiscard]] collective_match& match_at(std::uint64_t index, node_pool<collective_match>& pool) {
    if (index == end_) open(pool);
    return *matches_[index & (matches_.size() - 1)];
  }
  /// Removes \p one, which all ranks have requested.
  void forget(collective_match& one, node_pool<collective_match>& pool) noexcept;
  /// Removes \p one, which was withdrawn and which all ranks have requested.
  void forget_withdrawn(collective_match& one, node_pool<collective_match>& pool) noexcept;
  void forget_all(node_pool<collective_match>& pool) noexcept;
  /// Returns how many ranks have requested \p one.
  [[nodiscard]] std::uint32_t come_to(const collective_match& one) const noexcept;

private:
  void open(node_pool<collective_match>& pool);

  std::vector<collective_match*> matches_; ///< A ring indexed by number.
  std::uint64_t first_ = 0;
  std::uint64_t end_ = 0;
};

} // namespace troupe
