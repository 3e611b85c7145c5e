/// Where the ranks of a communicator with one-shot kernels meet while it forms: each brings its scratch and learns
/// those of its peers. For communicators whose ranks are all in one process.
#pragma once

#include <troupe/collectives/backend/one_shot/one_shot_rule.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_table.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/memory/peer_memory.hpp>
#include <troupe/device/threads/condition.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace troupe {

/// What a rank brings, or why it brings nothing.
struct one_shot_offer {
  std::shared_ptr<device> where{};
  std::shared_ptr<const peer_memory> scratch{}; ///< Zeroed. Null: this rank cannot take part.
  std::vector<device_id> reaches{};             ///< The devices whose memory kernels on \p where may use.
  unsigned blocks = 0;                          ///< The most blocks of a launch at this rank.
  std::string why{};                            ///< For people: why it cannot.
};

/// What all ranks have. The same at each of them.
struct one_shot_peers {
  std::vector<std::shared_ptr<const peer_memory>> scratch{}; ///< By rank. Empty: no rank uses one-shot kernels.
  unsigned blocks = 0;                                       ///< The most blocks of a launch.
  std::string why{};
};

/// Threads: safe from any.
class one_shot_meeting : public std::enable_shared_from_this<one_shot_meeting> {
public:
  explicit one_shot_meeting(int world_size) : offers_(static_cast<std::size_t>(world_size)) {}

  /// Waits until every rank has called it. If one of them cannot take part, or two devices do not reach each other's
  /// memory, none does. Blocks; abort() ends it. Errors: communicator_failed (aborted).
  [[nodiscard]] one_shot_peers meet(rank self, one_shot_offer mine);
  /// Ends the waiting of all ranks, now and later, here and in communicators that split from this one. A successor of a
  /// failed one (shrink, revoke) is not ended: the failed one's ranks may be aborted while it forms.
  void abort() noexcept;

  /// Names a communicator that is derived from this one: how, by which call of this kind, and its color.
  enum class derivation_kind : std::uint8_t { split, shrink, revoke };
  using derivation = std::tuple<derivation_kind, std::uint64_t, int>;
  /// Returns the meeting of a derived communicator, the same for all ranks that name it.
  [[nodiscard]] std::shared_ptr<one_shot_meeting> derived(const derivation& name, int world_size);

private:
  [[nodiscard]] one_shot_peers concluded() const;

  std::mutex mutex_;
  condition changed_;
  std::vector<std::optional<one_shot_offer>> offers_;
  std::size_t arrived_ = 0;
  bool aborted_ = false;
  std::optional<one_shot_peers> peers_;
  std::map<derivation, std::weak_ptr<one_shot_meeting>> derived_;
};

} // namespace troupe
