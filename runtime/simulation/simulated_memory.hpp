/// The memory of a simulated run's requests: known values in, a mark where results go, and whether what came is right.
#pragma once

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/pipeline/plans/captured_plan.hpp>
#include <troupe/collectives/pipeline/plans/plan_steps.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/memory/undefined_buffer.hpp>
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

/// Every request has memory of its own on every rank, so that what is written where nothing may be is seen at the end.
/// Registered memory is given out to one request at a time; the replays of a plan are one after the other on the
/// plan's, of which each capture has another, for what hangs may still write to the last one's. Threads: the run's.
class simulated_memory {
public:
  /// Hears that nobody but the client holds a request's memory on a rank any more.
  using release_hook = std::function<void(std::size_t request, rank self)>;

  simulated_memory(const scenario& of, const std::vector<std::shared_ptr<device>>& devices);

  void on_release(release_hook hook) { hook_ = std::move(hook); }

  /// \p request is asked of a world of these ranks, in its order, under their names of the first epoch: to be called
  /// before its parts are made. Without a call it is one of all ranks. \p now: the epoch that it is asked in.
  void ask_among(const planned_request& request, std::vector<rank> ranks, epoch now);
  [[nodiscard]] bool is_among(const planned_request& what, rank self) const;
  /// Whether \p self, which is among those who are asked, has a part in it.
  [[nodiscard]] bool takes_part(const planned_request& what, rank self) const;

  /// \p self's part of \p what, also where it is none of the ranks that are asked; \p less: of one element less
  /// than the others', where there are any.
  [[nodiscard]] operation part_of(const planned_request& what, rank self, bool less = false) const;
  /// Whose memory \p part names, a group's first part: a request's, or a capture's; none: of a barrier.
  [[nodiscard]] std::optional<std::size_t> request_of(const operation& part, rank self) const;

  /// As work that hangs may do when it is aborted: \p self's result of \p what is something else from now on.
  void spoil(const planned_request& what, rank self) const;

  /// Whether all of \p self's result of \p what is in \p all.
  [[nodiscard]] bool is_listed(const planned_request& what, rank self, const undefined_buffers& all) const;

  enum class finding : std::uint8_t { nothing, untouched, right, wrong };
  /// What lies where \p self's result of \p what goes; nothing where it has none, and where it is none of the ranks
  /// that are asked and nothing is written.
  [[nodiscard]] finding look(const planned_request& what, rank self) const;

  // Registered memory: requests that are on it find their place there as soon as they are asked. ---------------------
  /// Of each rank, for all that may be on \p registration at once.
  [[nodiscard]] std::size_t registered_bytes() const;
  void open_registered(std::size_t registration, std::shared_ptr<registered_pool> pool);
  /// Where \p self's part of \p what lies, if that is in registered memory.
  [[nodiscard]] const std::byte* registered_place(const planned_request& what, rank self) const;
  /// Nobody writes to \p what any more: how it has come out stays, and its place is free for others.
  void give_back(const planned_request& what);

  // Plans -------------------------------------------------------------------------------------------------------------
  /// What captures \p what: a sum of all ranks, and a copy of it by the client's own work. May take a while, and throws
  /// at times. On other memory each time; none is left after some times: it throws.
  [[nodiscard]] capture_function function_of(const planned_request& what);
  /// The same as requests, for \p ranks. Errors: out_of_memory.
  [[nodiscard]] plan_steps steps_of(const planned_request& what, const std::vector<rank>& ranks);
  /// \p part, of the capture \p what, has been captured in a rank's \p formation th communicator.
  void captured(const planned_request& what, rank self, const operation& part, std::uint64_t formation);
  /// New values to add up, for \p replay, which is asked next.
  void refill(const planned_request& replay);
  /// As give_back(): the next replay may come.
  void settle(const planned_request& replay) { freeze(replay); }

private:
  struct shape {
    std::size_t sent = 0;     ///< In elements.
    std::size_t received = 0; ///< 0: nothing is written.
  };
  /// Of the ranks that are asked, or where there is none: as if all were.
  struct party {
    std::vector<rank> ranks;
    rank root;      ///< As all ranks here: its name in the first epoch.
    rank root_here; ///< As it is called where it is asked.
    [[nodiscard]] std::size_t index_of(rank self) const;
    /// As it is called where it is asked.
    [[nodiscard]] rank name_of(rank self) const { return rank{static_cast<int>(index_of(self))}; }
    /// In a circle.
    [[nodiscard]] rank after(rank self) const;
    [[nodiscard]] rank before(rank self) const;
  };
  [[nodiscard]] party party_of(const planned_request& what, rank self) const;
  /// What \p self's part of it writes to.
  [[nodiscard]] std::span<std::uint64_t> results_of(const planned_request& what, rank self) const;
  /// Of its part among \p all.
  [[nodiscard]] static shape shape_of(const planned_request& what, rank self, const party& all);
  /// Whoever is asked: what it needs at most.
  [[nodiscard]] shape most_of(const planned_request& what) const;
  [[nodiscard]] std::uint64_t value(std::size_t request, rank of, std::size_t at) const noexcept;
  [[nodiscard]] std::uint64_t expected(const planned_request& what, rank self, std::size_t at, const party& all) const;

  struct place {
    std::byte* sent = nullptr;
    std::byte* received = nullptr;
    shape size{};
  };
  /// Of a plan on one rank: each of its captures has one.
  struct plan_memory {
    std::vector<place> sets; ///< What is received is the sum, and then its copy.
    std::size_t used = 0;
    std::map<std::uint64_t, std::size_t> taken_in; ///< By formation.
  };
  /// A range of the rank's memory as an operand, whose release is heard of.
  [[nodiscard]] buffer hand_out(const planned_request& what, rank self, std::byte* first, std::size_t count) const;
  [[nodiscard]] const place& place_of(const planned_request& what, rank self) const;
  [[nodiscard]] plan_memory& plan_of(std::size_t capture, rank self) {
    return plans_.at(capture)[static_cast<std::size_t>(self.value())];
  }
  [[nodiscard]] place& next_set(const planned_request& what, rank self);
  /// The sum's operands, and where it is copied to.
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
  std::map<std::pair<std::size_t, rank>, buffer> registered_;     ///< By request and rank: what it is on.
  std::map<std::size_t, std::vector<plan_memory>> plans_;         ///< By capture, then by rank.
  std::map<std::size_t, std::vector<finding>> frozen_;            ///< By request, then by rank.
  /// By capture: the replay that its memory is filled for.
  std::map<std::size_t, const planned_request*> replays_;
  release_hook hook_;
};

} // namespace troupe::simulation
