/// Decides the order of all launches of worlds that share GPUs, from requests that arrive in any order.
#pragma once

#include <troupe/collectives/collective_settings.hpp>
#include <troupe/collectives/order/absence_report.hpp>
#include <troupe/collectives/order/sequenced.hpp>
#include <troupe/device/error.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// The results of a step of the sequencer. The caller reuses one object and clears it, so that steps do not allocate.
struct sequencing_effects {
  /// A request that is answered without having been released.
  struct refusal {
    std::unique_ptr<sequenced> what;
    error why; ///< Its effect is rejected, because the request was not released.
    /// The report of the missing ranks, if peers did not send their requests.
    std::shared_ptr<absence_report> absence{};
  };

  /// The released requests, in the order of release. The requests of one operation are adjacent: ends[i] is the end of
  /// the i-th operation.
  std::vector<std::unique_ptr<sequenced>> released{};
  std::vector<std::size_t> ends{};
  std::vector<refusal> refused{};
  std::vector<std::shared_ptr<absence_report>> straggling{};

  void clear() noexcept;
};

/// Matches requests and releases complete operations. A state machine without threads, clock or CAF.
///
/// A collective needs all ranks of its world; it is matched by its position among the collectives of the lane. A send
/// is matched with its recv by lane, source, destination, tag and position among these. A group of sends and receives
/// needs all groups that are connected to it by transfers. A copy needs no other rank. An operation that has all its
/// participants, each at the head of its lane at its rank, is validated (ORD-2) and released. All ranks therefore have
/// one order (ORD-1), which within a lane is the order of its requests.
class sequencer {
public:
  explicit sequencer(sequencer_limits limits = {});
  sequencer(const sequencer&) = delete;
  sequencer& operator=(const sequencer&) = delete;
  ~sequencer();

  /// Opens a world of \p size ranks, all of which send their requests to this object. Returns its number, which is
  /// never reused.
  [[nodiscard]] std::uint32_t open_world(int size);
  /// Refuses waiting requests of the world, and all later ones, with \p why.
  void close_world(std::uint32_t world, const error& why, sequencing_effects& effects);

  /// Accepts \p one, which was validated for its own rank. Refuses it immediately if another client owns the lane, the
  /// position is not the next one, the rank is too far ahead (busy), or the world is closed. A mismatch between ranks
  /// is found when all of them have sent their requests: these are then refused with mismatch, and the lane continues.
  void ask(std::unique_ptr<sequenced> one, sequencing_effects& effects);

  /// Withdraws a request that has not been released. It is answered with cancelled; peers that have joined the
  /// operation, or will join it, are informed. Returns false if there is no such request (any more).
  bool cancel(std::uint32_t world, rank self, lane where, std::uint64_t position, sequencing_effects& effects);
  /// Handles the end of a client: withdraws all its waiting requests in every lane that it owns at \p self, as cancel()
  /// does, with \p why. The lanes are then free for another client, at the next position.
  void withdraw(std::uint32_t world, rank self, std::uint64_t client, const error& why, sequencing_effects& effects);

  /// Handles the end of a rank's part in the world: refuses its waiting requests and those that need it, and all such
  /// requests that come later, with \p why. The other ranks' requests among themselves go on.
  void leave(std::uint32_t world, rank self, const error& why, sequencing_effects& effects);

  /// Refuses requests that have waited past their deadline, with a report of the missing ranks, and withdraws their
  /// operations as cancel() does.
  void expire(time_point now, sequencing_effects& effects);
  /// Returns the time before which expire() does nothing; time_point::max() if no request waits.
  [[nodiscard]] time_point next_due() const noexcept;

  /// Returns the number of requests that wait for peers.
  [[nodiscard]] std::size_t waiting() const noexcept;

private:
  class state;
  std::unique_ptr<state> state_;
};

} // namespace troupe
