/// Where the ranks of one formation meet: first all of them, then their operations.
/// It is what a network and a GPU's spinning kernels are to NCCL, except that it can say why it hangs.
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

/// One launch of one rank: its collectives, which every rank must come to, and its sends and receives, which meet one
/// peer's. Numbered by a mock_order, held by the task in the stream; from the first meet() on the rendezvous' own.
struct mock_launch {
  /// A send or recv, and its number among those from one rank to another.
  struct transfer {
    mock_call call;
    std::size_t from = 0;
    std::size_t to = 0;
    std::uint64_t ordinal = 0;
    bool over = false;
  };

  rank self;
  std::optional<std::uint64_t> ordinal{}; ///< Among the launches that have collectives.
  std::vector<mock_call> collectives{};
  std::vector<transfer> transfers{};
  bool computes = true;
  std::string text; ///< describe() of the operations, for people.

  bool arrived = false;
  std::size_t pending = 0;
};

/// A launch of one operation, or of several together, without its numbers.
[[nodiscard]] mock_launch make_launch(std::span<const operation* const> all, rank self, int world_size);

/// Numbers the launches of one rank, in the order in which they come to its streams.
class mock_order {
public:
  void number(mock_launch& next);

private:
  std::uint64_t collectives_ = 0;
  std::map<std::size_t, std::uint64_t> sent_;     ///< By receiver.
  std::map<std::size_t, std::uint64_t> received_; ///< By sender.
};

/// One formation's meeting place, shared by its communicators and their tasks in flight.
///
/// Invariants (ORD-1, ORD-2): the k-th collective launch of a rank meets the k-th of every other, and the k-th send
/// from one rank to another the k-th recv; unless all ask the same, nobody's memory is touched, check() names who asked
/// for what, and nothing ends any more but by abort(). Threads: safe from any. Results are computed under the lock, so
/// that whoever leaves (abort, a dropped task) knows that its memory is not touched any more.
class mock_rendezvous {
public:
  /// The place that \p id names: made by the first communicator that asks, gone with the last.
  /// Errors: invalid_argument when it was made for another world size.
  [[nodiscard]] static std::shared_ptr<mock_rendezvous> find_or_make(const unique_id& id, int world_size);

  mock_rendezvous(const unique_id& id, int world_size);
  mock_rendezvous(const mock_rendezvous&) = delete;
  mock_rendezvous& operator=(const mock_rendezvous&) = delete;
  ~mock_rendezvous();

  /// Comes in and blocks until all have. \p engine is woken when a meeting of this rank may have ended.
  /// Errors: communicator_failed after abort(), invalid_argument when this rank has come before.
  void join(rank self, std::shared_ptr<mock_waker> engine);

  /// Comes with \p mine, once or again; reached when all of it is over for this rank. \p mine must stay where it is
  /// until then, or until leave().
  [[nodiscard]] progress meet(mock_launch& mine);
  /// Withdraws a launch that is not over: its memory is not touched from here on, and the others hang.
  void leave(mock_launch& mine) noexcept;

  /// Throws mismatch once ranks have disagreed, communicator_failed after abort().
  void check(rank self) const;
  /// Ends everything of this rank. Idempotent.
  void abort(rank self) noexcept;

private:
  using meeting = std::vector<mock_launch*>; ///< By rank; null for those that have not come.
  /// The two ends of one transfer.
  struct encounter {
    mock_launch* sender = nullptr;
    mock_launch::transfer* sent = nullptr;
    mock_launch* receiver = nullptr;
    mock_launch::transfer* received = nullptr;
  };
  struct member {
    std::shared_ptr<mock_waker> engine; ///< Empty until it joins.
    bool aborted = false;
  };
  using route = std::pair<std::size_t, std::size_t>; ///< From, to.
  using transfer_key = std::pair<route, std::uint64_t>;

  [[nodiscard]] member& member_of(rank who) { return members_[static_cast<std::size_t>(who.value())]; }
  [[nodiscard]] const member& member_of(rank who) const { return members_[static_cast<std::size_t>(who.value())]; }
  void arrive(mock_launch& mine);
  /// All are there: computes, or finds that they disagree.
  void conclude(std::uint64_t ordinal, const meeting& all);
  void conclude(const encounter& both);
  void fail(std::string text);
  void withdraw(mock_launch& mine) noexcept;
  void wake_all() const noexcept;

  const unique_id id_;
  mutable std::mutex guard_;
  condition joined_changed_;
  std::vector<member> members_;
  bool formed_ = false;
  std::map<std::uint64_t, meeting> meetings_;
  std::map<transfer_key, encounter> encounters_;
  std::optional<error> mismatch_;
};

} // namespace troupe
