/// Connects the ranks of one formation: first the ranks themselves, then their operations.
/// It corresponds to the network and the spinning GPU kernels of NCCL, but it can report why it hangs.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/mock/mock_call.hpp>
#include <troupe/device/mock/mock_engine.hpp>
#include <troupe/device/threads/condition.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// One launch of one rank: its collectives, which every rank must reach, and its sends and receives, which match those
/// of one peer. A mock_order numbers it, and the task in the stream holds it. From the first meet() on, only the
/// rendezvous accesses it.
struct mock_launch {
  /// A send or recv, and its number among the transfers from one rank to another.
  struct transfer {
    mock_call call;
    std::size_t from = 0;
    std::size_t to = 0;
    std::uint64_t ordinal = 0;
    bool over = false;
  };

  rank self;
  std::optional<std::uint64_t> ordinal{}; ///< Index among the launches that have collectives.
  std::vector<mock_call> collectives{};
  std::vector<transfer> transfers{};
  bool computes = true;
  std::string text; ///< describe() of the operations, for messages.

  bool arrived = false;
  std::size_t pending = 0;
  std::size_t unsent = 0; ///< Messages to other processes that are not written yet.
};

/// Makes a launch of one operation or of several together, without its numbers.
[[nodiscard]] mock_launch make_launch(std::span<const operation* const> all, rank self, int world_size);

/// Numbers the launches of one rank, in the order in which they enter its streams.
class mock_order {
public:
  void number(mock_launch& next);

private:
  std::uint64_t collectives_ = 0;
  std::map<std::size_t, std::uint64_t> sent_;     ///< Number of sends, by receiver.
  std::map<std::size_t, std::uint64_t> received_; ///< Number of receives, by sender.
};

/// Returns errc::none, or errc::mismatch that names which ranks launched what. \p all: the launches with the number
/// \p ordinal, in rank order.
[[nodiscard]] error find_mismatch(std::uint64_t ordinal, std::span<const mock_launch* const> all);
/// The same for the two ends of a transfer.
[[nodiscard]] error find_mismatch(const mock_launch::transfer& sent, const mock_launch::transfer& received);
/// Computes the results of the launches \p all, in rank order, whose ranks agree.
void perform_all(std::span<const mock_launch* const> all);
/// Returns the error of calls after abort().
[[nodiscard]] error aborted_error(rank who);

/// Connects the ranks of one formation. Shared by its communicators and their tasks in flight.
///
/// Invariants (ORD-1, ORD-2): the k-th collective launch of a rank matches the k-th of every other rank, and the k-th
/// send from one rank to another matches the k-th recv. If the ranks disagree, no memory is accessed, check() reports
/// which rank launched what, and only abort() ends the operations. Threads: safe from any. Results are computed under
/// a lock, so that after leave() (abort, a dropped task) a launch's memory is no longer accessed.
class mock_rendezvous {
public:
  mock_rendezvous() = default;
  mock_rendezvous(const mock_rendezvous&) = delete;
  mock_rendezvous& operator=(const mock_rendezvous&) = delete;
  virtual ~mock_rendezvous() = default;

  /// Joins, and blocks until all ranks have joined. \p engine is woken when a launch of this rank may have ended.
  /// Errors: communicator_failed after abort(), invalid_argument if this rank has already joined.
  virtual void join(rank self, std::shared_ptr<mock_waker> engine) = 0;

  /// Registers \p mine on the first call, and returns reached when it is complete for this rank. \p mine must keep its
  /// address until then, or until leave(). Never blocks.
  [[nodiscard]] virtual progress meet(mock_launch& mine) = 0;
  /// Withdraws an incomplete launch: its memory is no longer accessed, and the other ranks hang.
  virtual void leave(mock_launch& mine) noexcept = 0;

  /// Throws mismatch after ranks have disagreed, communicator_failed after abort().
  virtual void check(rank self) const = 0;
  /// Ends all work of this rank. Idempotent.
  virtual void abort(rank self) noexcept = 0;
};

/// The rendezvous of ranks in one process, which access each other's memory. After abort() of a rank its peers hang
/// until their own abort().
class local_rendezvous final : public mock_rendezvous {
public:
  /// Returns the rendezvous of \p id. The first caller creates it; it is destroyed with its last owner.
  /// Errors: invalid_argument if it was made for another world size.
  [[nodiscard]] static std::shared_ptr<local_rendezvous> find_or_make(const unique_id& id, int world_size);

  local_rendezvous(const unique_id& id, int world_size);
  ~local_rendezvous() override;

  void join(rank self, std::shared_ptr<mock_waker> engine) override;
  [[nodiscard]] progress meet(mock_launch& mine) override;
  void leave(mock_launch& mine) noexcept override;
  void check(rank self) const override;
  void abort(rank self) noexcept override;

private:
  using arrivals = std::vector<mock_launch*>; ///< Indexed by rank; null for ranks that have not arrived.
  /// The two ends of one transfer.
  struct transfer_match {
    mock_launch* sender = nullptr;
    mock_launch::transfer* sent = nullptr;
    mock_launch* receiver = nullptr;
    mock_launch::transfer* received = nullptr;
  };
  struct member {
    std::shared_ptr<mock_waker> engine; ///< Null until the rank joins.
    bool aborted = false;
  };
  using route = std::pair<std::size_t, std::size_t>; ///< The sending rank and the receiving rank.
  using transfer_key = std::pair<route, std::uint64_t>;

  [[nodiscard]] member& member_of(rank who) { return members_[static_cast<std::size_t>(who.value())]; }
  [[nodiscard]] const member& member_of(rank who) const { return members_[static_cast<std::size_t>(who.value())]; }
  void arrive(mock_launch& mine);
  /// Called when all ranks have arrived. Computes the results, or records a mismatch.
  void conclude(std::uint64_t ordinal, const arrivals& all);
  void conclude(const transfer_match& both);
  void withdraw(mock_launch& mine) noexcept;
  void wake_all() const noexcept;

  const unique_id id_;
  mutable std::mutex mutex_;
  condition joined_changed_;
  std::vector<member> members_;
  bool formed_ = false;
  std::map<std::uint64_t, arrivals> arrivals_;
  std::map<transfer_key, transfer_match> matches_;
  std::optional<error> mismatch_;
};

} // namespace troupe
