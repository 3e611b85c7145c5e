/// The order of everything that worlds which share GPUs launch, decided from requests that come in any order.
#pragma once

#include <troupe/collectives/order/absence_report.hpp>
#include <troupe/collectives/order/sequenced.hpp>
#include <troupe/device/error.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// How much may wait, and for how long unnoticed.
struct sequencer_limits {
  /// Requests of one rank in one world that wait for its peers; one more is refused as busy. In each lane also those
  /// that were taken back and that some peer has not come to: they are remembered for it.
  std::size_t lead = 256;
  /// A request that has waited this long for peers is told of as straggling, once; 0: never.
  nanoseconds straggling{0};
};

/// What a step of the sequencer leads to. The caller keeps one and clears it, so that steps allocate nothing.
struct sequencing_effects {
  /// A request that is answered without having been released.
  struct refusal {
    std::unique_ptr<sequenced> what;
    error why; ///< Rejected: it has not been released.
    /// Where peers did not come: who is missing.
    std::shared_ptr<absence_report> absence{};
  };

  /// In the order of release. Requests of one operation stand together: ends[i] is where the i-th operation's end.
  std::vector<std::unique_ptr<sequenced>> released{};
  std::vector<std::size_t> ends{};
  std::vector<refusal> refused{};
  std::vector<std::shared_ptr<absence_report>> straggling{};

  void clear() noexcept;
};

/// A state machine without threads, clock or CAF.
///
/// Requests are matched over their participants: a collective over all ranks of its world, by its place among the
/// collectives of the lane; a send with its recv, by lane, source, destination, tag and place among those; a group of
/// sends and receives with all that they lead to; a copy with nobody. What has all its participants, each at the head
/// of its lane at that rank, is checked (ORD-2) and released; so every rank sees one order (ORD-1), and in a lane its
/// own.
class sequencer {
public:
  explicit sequencer(sequencer_limits limits = {});
  sequencer(const sequencer&) = delete;
  sequencer& operator=(const sequencer&) = delete;
  ~sequencer();

  /// A world of \p size ranks, all of which will ask here. Returns its number, which is not used again.
  [[nodiscard]] std::uint32_t open_world(int size);
  /// Refuses what waits there, and whatever is asked later, with \p why.
  void close_world(std::uint32_t world, const error& why, sequencing_effects& effects);

  /// Takes \p one, which has been validated for its own rank. Refused at once: mismatch with the lane's earlier joiner
  /// only when all have come (then all are refused with mismatch, and the lane goes on); a lane that another client
  /// owns, a position that is not the next, a rank too far ahead (busy), a closed world.
  void ask(std::unique_ptr<sequenced> one, sequencing_effects& effects);

  /// Takes back what has not been released: its asker is answered with cancelled, the peers that have joined the
  /// operation or will join it are told. Returns false where there is no such request any more.
  bool cancel(std::uint32_t world, rank self, lane where, std::uint64_t position, sequencing_effects& effects);
  /// A client has ended: the same for all that it waits for, in every lane that it owns at \p self, with \p why; the
  /// lanes are then free for another client, at the next position.
  void withdraw(std::uint32_t world, rank self, std::uint64_t client, const error& why, sequencing_effects& effects);

  /// What waits in \p where, and what comes, stays there until resume(): something that is not asked for goes first.
  void hold(std::uint32_t world, lane where);
  void resume(std::uint32_t world, lane where, sequencing_effects& effects);

  /// Refuses what has waited past its deadline, with a report of who is missing, and withdraws it as cancel() does.
  void expire(time_point now, sequencing_effects& effects);
  /// Before this there is nothing for expire() to do; time_point::max() when nothing waits.
  [[nodiscard]] time_point next_due() const noexcept;

  /// Requests that wait for peers.
  [[nodiscard]] std::size_t waiting() const noexcept;

private:
  class state;
  std::unique_ptr<state> state_;
};

} // namespace troupe
