/// Where the ranks of one formation meet: first all of them, then their k-th operations.
/// It is what a network and a GPU's spinning kernels are to NCCL, except that it can say why it hangs.
#pragma once

#include <troupe/collectives/communicator.hpp>
#include <troupe/collectives/mock/mock_reduce.hpp>
#include <troupe/device/mock/mock_engine.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// What one rank brings to a meeting: plain values and addresses, as a kernel's arguments are. Whoever asked holds
/// the memory (BUF-1).
struct mock_arrival {
  std::size_t kind = 0; ///< Index in troupe::operation.
  std::size_t count = 0;
  dtype type = dtype::u8;
  reduction op = reduction::sum;
  reduce_part memory;
  std::string text; ///< describe() of the operation, for people.

  [[nodiscard]] bool asks_the_same(const mock_arrival& other) const noexcept {
    return kind == other.kind && count == other.count && type == other.type && op == other.op;
  }
};

/// One formation's meeting place, shared by its communicators and their tasks in flight.
///
/// Invariants (ORD-1, ORD-2): the k-th operation of a rank meets the k-th of every other; unless all ask the same,
/// nobody's memory is touched, check() names who asked for what, and the meeting never ends but by abort().
/// Threads: safe from any. Results are computed under the lock, so that whoever leaves (abort, a dropped task) knows
/// that its memory is not touched any more.
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

  /// Comes to meeting \p ordinal, once or again; reached when it is over for this rank.
  [[nodiscard]] progress meet(rank self, std::uint64_t ordinal, const mock_arrival& arrival);
  /// Withdraws from a meeting that is not over: its memory is not touched from here on, and the others hang.
  void leave(rank self, std::uint64_t ordinal) noexcept;

  /// Throws mismatch once ranks have disagreed, communicator_failed after abort().
  void check(rank self) const;
  /// Ends everything of this rank. Idempotent.
  void abort(rank self) noexcept;

private:
  struct meeting {
    std::vector<std::optional<mock_arrival>> arrivals; ///< By rank.
    std::size_t present = 0;
    std::size_t gone = 0; ///< Of those that were there when it ended.
    bool over = false;
  };
  struct member {
    std::shared_ptr<mock_waker> engine; ///< Empty until it joins.
    bool aborted = false;
  };

  [[nodiscard]] member& member_of(rank who) { return members_[static_cast<std::size_t>(who.value())]; }
  [[nodiscard]] const member& member_of(rank who) const { return members_[static_cast<std::size_t>(who.value())]; }
  /// All are there: computes, or finds that they disagree.
  void conclude(std::uint64_t ordinal, meeting& all);
  void wake_all() const noexcept;

  const unique_id id_;
  mutable std::mutex guard_;
  std::condition_variable joined_changed_;
  std::vector<member> members_;
  bool formed_ = false;
  std::map<std::uint64_t, meeting> meetings_;
  std::optional<error> mismatch_;
};

} // namespace troupe
