/// Provides the memory of a simulated run: blocks with known contents that report their release.
#pragma once

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/pipeline/plans/plan_steps.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/testing/simulation/scenario.hpp>

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

constexpr std::uint64_t unwritten = 0xEEEEEEEEEEEEEEEEU; ///< Marks outputs that have not been written.
constexpr std::size_t element_bytes = sizeof(std::uint64_t);

/// Returns the memory as elements. The mock's device memory is host memory.
[[nodiscard]] inline std::span<std::uint64_t> elements(std::byte* first, std::size_t count) {
  return {reinterpret_cast<std::uint64_t*>(first), count};
}

/// A range of memory as an operand. Threads: only that of the run.
class watched_block final : public memory_block {
public:
  /// \p under is the buffer that contains the range, and is held until destruction. Empty: the memory outlives the run.
  watched_block(std::shared_ptr<device> where, std::byte* first, std::size_t count, buffer under,
                std::function<void()> on_release)
    : memory_block{std::move(where), memory_kind::device, first, count * element_bytes},
      under_{std::move(under)},
      on_release_{std::move(on_release)} {}
  ~watched_block() override {
    if (on_release_) on_release_();
  }
  void note_use(stream_ref stream) override {
    if (under_) under_.note_use(stream);
  }

private:
  buffer under_;
  std::function<void()> on_release_;
};

/// The memory of each request on each rank. Every request has its own memory on every rank, so that a forbidden write
/// is detected at the end. Registered memory is given to one request at a time. The replays of a plan use the plan's
/// memory one after the other. Each capture of a plan uses different memory, because a hanging operation may still
/// write to that of the previous capture. Threads: only that of the run.
class simulated_memory {
public:
  /// Called when only the client still holds a request's memory on a rank.
  using release_hook = std::function<void(std::size_t request, rank self)>;

  simulated_memory(const scenario& of, const std::vector<std::shared_ptr<device>>& devices);

  void on_release(release_hook hook) { hook_ = std::move(hook); }

  /// Sets the ranks that receive \p request, in their order and as numbered in the first epoch. \p now is the epoch of
  /// the request. Call it before part_of(). Without a call, all ranks receive the request.
  void ask_among(const planned_request& request, std::vector<rank> ranks, epoch now);
  /// Returns the epoch of ask_among() for \p request; 0 if it has not been called.
  [[nodiscard]] epoch asked_in(const planned_request& request) const {
    const auto found = asked_in_.find(request.number);
    return found == asked_in_.end() ? epoch{} : found->second;
  }
  [[nodiscard]] bool is_among(const planned_request& what, rank self) const;
  /// Returns whether \p self has a part in \p what. \p self must be one of the ranks that receive the request.
  [[nodiscard]] bool takes_part(const planned_request& what, rank self) const;

  /// Returns \p self's part of \p what, even if \p self does not receive the request. With \p less, the part has one
  /// element less than those of the other ranks, if it has elements.
  [[nodiscard]] operation part_of(const planned_request& what, rank self, bool less = false) const;
  /// Returns the value that the ranks receive for the agree \p what, as integers. \p self: one of them; empty for a
  /// request to the world.
  [[nodiscard]] std::vector<std::int64_t> agreed(const planned_request& what, std::optional<rank> self) const;
  /// Returns the request or capture whose memory \p part names; for a group, that of its first part. Nothing for a
  /// barrier.
  [[nodiscard]] std::optional<std::size_t> request_of(const operation& part, rank self) const;

  /// Changes \p self's result of \p what, as hanging work may do when it is aborted.
  void spoil(const planned_request& what, rank self) const;

  /// Returns whether \p all includes the whole result of \p self for \p what.
  [[nodiscard]] bool is_listed(const planned_request& what, rank self, const undefined_buffers& all) const;

  enum class finding : std::uint8_t { nothing, untouched, right, wrong };
  /// Examines the result memory of \p self for \p what. Returns `nothing` if it has no result, or if \p self does not
  /// receive the request and nothing has been written.
  [[nodiscard]] finding inspect(const planned_request& what, rank self) const;

  // Registered memory. A request that uses it gets its place there when it is made. -----------------------------------
  /// Returns the bytes to register per rank: half of what all requests need that may use registered memory.
  [[nodiscard]] std::size_t registered_bytes() const;
  void open_registered(std::size_t registration, std::shared_ptr<registered_pool> pool);
  /// Returns the address of \p self's part of \p what if that is in registered memory, else null.
  [[nodiscard]] const std::byte* registered_place(const planned_request& what, rank self) const;
  /// Stores the finding of \p what and frees its place for other requests. Call it when nothing writes there any more.
  void give_back(const planned_request& what);

  // Plans -------------------------------------------------------------------------------------------------------------
  /// Returns the function that captures \p what: an all_reduce over all ranks, and a copy of its result by client work.
  /// It may take long, and sometimes throws. Each capture uses different memory. When all memory has been used, the
  /// function throws.
  [[nodiscard]] capture_function function_of(const planned_request& what);
  /// Returns the same work as a plan of requests for \p ranks. Errors: out_of_memory.
  [[nodiscard]] plan_steps steps_of(const planned_request& what, const std::vector<rank>& ranks);
  /// Records that \p part of the capture \p what has been captured by rank \p self in the communicator of formation \p
  /// formation.
  void captured(const planned_request& what, rank self, const operation& part, std::uint64_t formation);
  /// Writes new inputs for \p replay, which is the next request that uses the plan's memory.
  void refill(const planned_request& replay);
  /// Stores the finding of \p replay, so that the next replay may be requested.
  void settle(const planned_request& replay) { freeze(replay); }

private:
  struct shape {
    std::size_t sent = 0;     ///< The number of elements.
    std::size_t received = 0; ///< The number of elements. 0: nothing is written.
  };
  /// The ranks that receive a request; all ranks, if those are unknown or do not include the rank in question.
  struct participants {
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
  [[nodiscard]] participants participants_of(const planned_request& what, rank self) const;
  /// Returns the memory that \p self's part writes.
  [[nodiscard]] std::span<std::uint64_t> results_of(const planned_request& what, rank self) const;
  /// Returns the size of \p self's part among \p all.
  [[nodiscard]] static shape shape_of(const planned_request& what, rank self, const participants& all);
  /// Returns the largest size that any set of ranks needs.
  [[nodiscard]] shape most_of(const planned_request& what) const;
  [[nodiscard]] std::uint64_t value(std::size_t request, rank of, std::size_t at) const noexcept;
  [[nodiscard]] std::uint64_t expected(const planned_request& what, rank self, std::size_t at,
                                       const participants& all) const;

  struct place {
    std::byte* sent = nullptr;
    std::byte* received = nullptr;
    shape size{};
  };
  /// The memory of a plan on one rank. Each capture of the plan uses one set.
  struct plan_memory {
    std::vector<place> sets; ///< Each set receives the sum, followed by its copy.
    std::size_t used = 0;
    std::map<std::uint64_t, std::size_t> taken_in; ///< The index of the set that a formation uses.
  };
  /// Returns a range of the rank's memory as an operand. Its release is reported.
  [[nodiscard]] buffer hand_out(const planned_request& what, rank self, std::byte* first, std::size_t count) const;
  [[nodiscard]] const place& place_of(const planned_request& what, rank self) const;
  /// Returns false while the rank has not captured the plan of \p replay in the epoch in which that was requested.
  [[nodiscard]] bool is_place_known(const planned_request& replay, rank self) const;
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
  std::vector<buffer> storage_;                                   ///< All memory of a rank, by rank.
  std::vector<std::map<std::size_t, place>> places_;              ///< Indexed by rank, then by request.
  std::vector<std::map<const std::byte*, std::size_t>> requests_; ///< Indexed by rank, then by address.
  std::map<std::size_t, std::vector<rank>> rosters_;              ///< The ranks that receive a request, by request.
  std::map<std::size_t, epoch> asked_in_;                         ///< The epoch of a request, by request.
  std::map<std::size_t, std::shared_ptr<registered_pool>> pools_; ///< Registered memory, by registration.
  /// The registered memory that a request uses, by request and rank.
  std::map<std::pair<std::size_t, rank>, buffer> registered_;
  std::map<std::size_t, std::vector<plan_memory>> plans_; ///< Indexed by capture, then by rank.
  std::map<std::size_t, std::vector<finding>> frozen_;    ///< Stored findings, indexed by request, then by rank.
  /// The replay whose inputs are in a plan's memory, by capture.
  std::map<std::size_t, const planned_request*> replays_;
  release_hook hook_;
};

} // namespace troupe::simulation
