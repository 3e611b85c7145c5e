/// Where the ranks of a communicator with one-shot kernels meet while it forms: each brings its scratch and learns
/// those of its peers. The implementations are one_shot_local_meeting.hpp and, for ranks in several processes, that of
/// the package of worlds over processes.
#pragma once

#include <troupe/collectives/backend/one_shot/one_shot_rule.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_table.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/memory/peer_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace troupe {

/// What a rank brings, or why it brings nothing.
struct one_shot_offer {
  std::shared_ptr<device> where{};
  std::shared_ptr<const peer_memory> scratch{}; ///< Zeroed. Null: this rank cannot take part.
  std::vector<device_id> reaches{};             ///< The devices whose memory kernels on \p where may use.
  bool needs_nvlink = false;                    ///< They are only those behind NVLink.
  line_layout layout{};                         ///< Of the lines in \p scratch.
  std::size_t part_bytes = 0;                   ///< The limit that the settings give (one_shot_limits).
  unsigned blocks = 0;                          ///< The most blocks of a launch at this rank.
  std::string why{};                            ///< For people: why it cannot.
};

/// What all ranks have. The same at each of them.
struct one_shot_peers {
  std::vector<std::shared_ptr<const peer_memory>> scratch{}; ///< By rank. Empty: no rank uses one-shot kernels.
  unsigned blocks = 0;                                       ///< The most blocks of a launch.
  bool are_in_processes = false; ///< Kernels of other processes store into this rank's scratch.
  std::string why{};
};

/// The meeting of one communicator, at one or several of its ranks. Threads: safe from any.
class one_shot_meeting {
public:
  one_shot_meeting() = default;
  one_shot_meeting(const one_shot_meeting&) = delete;
  one_shot_meeting& operator=(const one_shot_meeting&) = delete;
  virtual ~one_shot_meeting() = default;

  /// Returns why no rank of the communicator can meet others here, the same at all ranks; empty if they can. Only then
  /// call meet().
  [[nodiscard]] virtual std::string absence() const { return {}; }
  /// Waits until every rank has called it. If one of them cannot take part, or two devices do not reach each other's
  /// memory, none does. Blocks; abort() ends it. Errors: communicator_failed (aborted).
  [[nodiscard]] virtual one_shot_peers meet(rank self, one_shot_offer mine) = 0;
  /// Ends the waiting of all ranks, now and later, here and in communicators that split from this one. A successor of a
  /// failed one (shrink, revoke) is not ended: the failed one's ranks may be aborted while it forms.
  virtual void abort() noexcept = 0;

  /// Names a communicator that is derived from this one: how, by which call of this kind, and its color.
  enum class derivation_kind : std::uint8_t { split, shrink, revoke };
  using derivation = std::tuple<derivation_kind, std::uint64_t, int>;
  /// Returns the meeting of a derived communicator, the same for all ranks that name it.
  [[nodiscard]] virtual std::shared_ptr<one_shot_meeting> derived(const derivation& name, int world_size) = 0;
};

/// Finds the meetings of communicators that are not derived from others. Threads: safe from any.
class one_shot_meeting_place {
public:
  one_shot_meeting_place() = default;
  one_shot_meeting_place(const one_shot_meeting_place&) = delete;
  one_shot_meeting_place& operator=(const one_shot_meeting_place&) = delete;
  virtual ~one_shot_meeting_place() = default;

  /// Returns the meeting of the communicator with this id.
  [[nodiscard]] virtual std::shared_ptr<one_shot_meeting> meeting_of(const unique_id& id, int world_size) = 0;
  /// Notes whether all ranks of a formation over processes are on one node with an order service. Call it before
  /// meeting_of().
  virtual void note_node(const unique_id& formation, bool is_one) {
    static_cast<void>(formation);
    static_cast<void>(is_one);
  }
};

} // namespace troupe
