/// The memory of a simulated run's requests: fills the inputs with known values, marks the outputs, and checks the
/// results.
#pragma once

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/pipeline/plans/captured_plan.hpp>
#include <troupe/collectives/pipeline/plans/plan_steps.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/runtime/simulation/scenario.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// Memory by request and rank. Every request has memory of its own on every rank, so that a forbidden write is detected
/// at the end. Registered memory is given to one request at a time. The replays of a plan use the plan's memory one
/// after the other; each capture of a plan uses other memory, because a hanging operation may still write to that of
/// the last one. Threads: the run's.
class simulated_memory {
public:
  /// Called when only the client still holds a request's memory on a rank.
  using release_hook = std::function<void(std::size_t request, rank self)>;

  simulated_memory(const scenario& of, const std::vector<std::shared_ptr<device>>& devices);

  void on_release(release_hook hook) { hook_ = std::move(hook); }

  /// Sets the ranks of \p request, in their order and as numbered in the first epoch. Call it before its parts are
  /// made. Without a call, all ranks are asked. \p now is the epoch in which it is asked.
  void ask_among(const planned_request& request, std::vector<rank> ranks, epoch now);
  [[nodiscard]] bool is_among(const planned_request& what, rank self) const;
  /// Returns whether \p self has a part in it. \p self is one of the ranks that are asked.
  [[nodiscard]] bool takes_part(const planned_request& what, rank self) const;

  /// Returns \p self's part of \p what, even if \p self is not one of the ranks that are asked. With \p less it has one
  /// element less than those of the others, if it has elements.
  [[nodiscard]] operation part_of(const planned_request& what, rank self, bool less = false) const;
  /// Returns the request or capture whose memory \p part names; for a group, that of its first part. Nothing for a
  /// barrier.
  [[nodiscard]] std::optional<std::size_t> request_of(const operation& part, rank self) const;

  /// Changes \p self's result of \p what, as hanging work may do when it is aborted.
  void spoil(const planned_request& what, rank self) const;

  /// Returns whether \p all includes the whole result of \p self for \p what.
  [[nodiscard]] bool is_listed(const planned_request& what, rank self, const undefined_buffers& all) const;

  enum class finding : std::uint8_t { nothing, untouched, right, wrong };
  /// Returns what is in the result memory of \p self for \p what. `nothing` if it has no result, and if \p self is not
  /// one of the ranks that are asked and nothing has been written.
  [[nodiscard]] finding look(const planned_request& what, rank self) const;

  // Registered memory. Requests that use it get their place there when they are asked. --------------------------------
  /// Returns the size per rank, for all requests that may use \p registration at once.
  [[nodiscard]] std::size_t registered_bytes() const;
  void open_registered(std::size_t registration, std::shared_ptr<registered_pool> pool);
  /// Returns where \p self's part of \p what is, if that is in registered memory.
  [[nodiscard]] const std::byte* registered_place(const planned_request& what, rank self) const;
  /// Call when nothing writes to \p what any more. Keeps its finding and frees its place for others.
  void give_back(const planned_request& what);

  // Plans -------------------------------------------------------------------------------------------------------------
  /// Returns the function that captures \p what: a sum over all ranks, and a copy of it by the client's own work. It
  /// may take long, and sometimes throws. Each capture uses other memory. When all of it has been used, the function
  /// throws.
  [[nodiscard]] capture_function function_of(const planned_request& what);
  /// Returns the same as requests, for \p ranks. Errors: out_of_memory.
  [[nodiscard]] plan_steps steps_of(const planned_request& what, const std::vector<rank>& ranks);
  /// Records that \p part of the capture \p what has been captured by rank \p self in the communicator of formation \p
  /// formation.
  void captured(const planned_request& what, rank self, const operation& part, std::uint64_t formation);
  /// Fills in new values for \p replay, which is asked next.
  void refill(const planned_request& replay);
  /// As give_back(): the next replay may be asked.
  void settle(const planned_request& replay) { freeze(replay); }

private:
  struct shape {
    std::size_t sent = 0;     ///< In elements.
    std::size_t received = 0; ///< 0: nothing is written.
  };
  /// The ranks that are asked. All ranks, if those are not known or the rank in question is not one of them.
  struct party {
    std::vector<rank> ranks;
    rank root;      ///< As numbered in the first epoch, like all ranks here.
    rank root_here; ///< As numbered in the epoch of the request.
    [[nodiscard]] std::size_t index_of(rank self) const;
    /// Returns the rank as numbered in the epoch of the request.
    [[nodiscard]] rank name_of(rank self) const { return rank{static_cast<int>(index_of(self))}; }
    /// Returns the next rank of the ring.
    [[nodiscard]] rank after(rank self) const;
    [[nodiscard]] rank before(rank self) const;
  };
  [[nodiscard]] party party_of(const planned_request& what, rank self) const;
  /// Returns the memory that \p self's part writes.
  [[nodiscard]] std::span<std::uint64_t> results_of(const planned_request& what, rank self) const;
  /// Returns the size of \p self's part among \p all.
  [[nodiscard]] static shape shape_of(const planned_request& what, rank self, const party& all);
  /// Returns the largest size that any set of ranks needs.
  [[nodiscard]] shape most_of(const planned_request& what) const;
  [[nodiscard]] std::uint64_t value(std::size_t request, rank of, std::size_t at) const noexcept;
  [[nodiscard]] std::uint64_t expected(const planned_request& what, rank self, std::size_t at, const party& all) const;

  struct place {
    std::byte* sent = nullptr;
    std::byte* received = nullptr;
    shape size{};
  };
  /// The memory of a plan on one rank. Each capture of the plan uses one set.
  struct plan_memory {
    std::vector<place> sets; ///< Each receives the sum, followed by its copy.
    std::size_t used = 0;
    std::map<std::uint64_t, std::size_t> taken_in; ///< By formation.
  };
  /// Returns a range of the rank's memory as an operand. Its release is reported.
  [[nodiscard]] buffer hand_out(const planned_request& what, rank self, std::byte* first, std::size_t count) const;
  [[nodiscard]] const place& place_of(const planned_request& what, rank self) const;
  [[nodiscard]] plan_memory& plan_of(std::size_t capture, rank self) {
    return plans_.at(capture)[static_cast<std::size_t>(self.value())];
  }
  [[nodiscard]] place& next_set(const planned_request& what, rank self);
  /// The operands of the sum, and the destination of its copy.
  struct plan_part {
    all_reduce sum;
    buffer copied_to;
  };
  [[nodiscard]] plan_part plan_part_of(const planned_request& what, rank self, const place& on) const;
  void enter_registered(const planned_request& what, const std::vector<rank>& ranks);
  void fill(const planned_request& what, rank self, const place& on);
  void freeze(const planned_request& what);
  [[nodiscard]] finding look_now(const planned_request& what, rank self) const;

  const scenario& of_;
  std::vector<std::shared_ptr<device>> devices_;
  std::vector<buffer> storage_;                                   ///< By rank.
  std::vector<std::map<std::size_t, place>> places_;              ///< By rank, then by request.
  std::vector<std::map<const std::byte*, std::size_t>> requests_; ///< By rank, then by address.
  std::map<std::size_t, std::vector<rank>> rosters_;              ///< By request.
  std::map<std::size_t, epoch> asked_in_;                         ///< By request.
  std::map<std::size_t, std::shared_ptr<registered_pool>> pools_; ///< By registration.
  /// By request and rank: the registered memory that it uses.
  std::map<std::pair<std::size_t, rank>, buffer> registered_;
  std::map<std::size_t, std::vector<plan_memory>> plans_; ///< By capture, then by rank.
  std::map<std::size_t, std::vector<finding>> frozen_;    ///< By request, then by rank.
  /// By capture: the replay for which its memory is filled.
  std::map<std::size_t, const planned_request*> replays_;
  release_hook hook_;
};

} // namespace troupe::simulation
