/// The memory of a simulated run's requests: known values in, a mark where results go, and whether what came is right.
#pragma once

#include <troupe/collectives/operation.hpp>
#include <troupe/device/memory_pool.hpp>
#include <troupe/device/undefined_buffer.hpp>
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
/// Threads: the run's.
class simulated_memory {
public:
  /// Hears that nobody but the client holds a request's memory on a rank any more.
  using release_hook = std::function<void(std::size_t request, rank self)>;

  simulated_memory(const scenario& of, const std::vector<std::shared_ptr<device>>& devices);

  void on_release(release_hook hook) { hook_ = std::move(hook); }

  /// \p request is asked of a world of these ranks, in its order, under their names of the first epoch: to be called
  /// before its parts are made. Without a call it is one of all ranks.
  void ask_among(std::size_t request, std::vector<rank> ranks) { rosters_[request] = std::move(ranks); }
  [[nodiscard]] bool is_among(const planned_request& what, rank self) const;

  /// \p self's part of \p what, also where it is none of the ranks that are asked; \p less: of one element less
  /// than the others', where there are any.
  [[nodiscard]] operation part_of(const planned_request& what, rank self, bool less = false) const;
  /// Whose memory \p part names, a group's first part; none: of a barrier.
  [[nodiscard]] std::optional<std::size_t> request_of(const operation& part, rank self) const;

  /// As work that hangs may do when it is aborted: \p self's result of \p what is something else from now on.
  void spoil(const planned_request& what, rank self) const;

  /// Whether all of \p self's result of \p what is in \p all.
  [[nodiscard]] bool is_listed(const planned_request& what, rank self, const undefined_buffers& all) const;

  enum class finding : std::uint8_t { nothing, untouched, right, wrong };
  /// What lies where \p self's result of \p what goes; nothing where it has none, and where it is none of the ranks
  /// that are asked and nothing is written.
  [[nodiscard]] finding look(const planned_request& what, rank self) const;

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
  class watched_block;
  /// A range of the rank's memory as an operand, whose release is heard of.
  [[nodiscard]] buffer hand_out(const planned_request& what, rank self, std::byte* first, std::size_t count) const;

  const scenario& of_;
  std::vector<std::shared_ptr<device>> devices_;
  std::vector<buffer> storage_;                                   ///< By rank.
  std::vector<std::map<std::size_t, place>> places_;              ///< By rank, then by request.
  std::vector<std::map<const std::byte*, std::size_t>> requests_; ///< By rank, then by address.
  std::map<std::size_t, std::vector<rank>> rosters_;              ///< By request.
  release_hook hook_;
};

} // namespace troupe::simulation
