/// The controller's side of ordering::agreed over processes: one order of what the ranks of a world ask for, each in a
/// process of its own.
#pragma once

#include <troupe/collectives/order/distributed/decision_codec.hpp>
#include <troupe/collectives/order/distributed/request_codec.hpp>
#include <troupe/collectives/order/sequencer.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A sequencer whose requests come as batches of bytes and whose decisions go out as such: one pair of connections for
/// each rank, to its distributed_order. It is told the time, and has neither threads nor clock. Several worlds on the
/// same GPUs would need one order above them all (arbiter); this is for one.
///
/// After anything that is done to it, every rank is to be given what take_outgoing() has for it. Threads: one at a
/// time.
class order_keeper {
public:
  explicit order_keeper(sequencer_limits limits = {});
  ~order_keeper();

  /// The world begins an epoch, later than any before, with as many ranks. What is left of an earlier one is forgotten.
  /// Errors: invalid_argument (no rank).
  void open(epoch of, int world_size);
  /// Refuses what waits, and whatever comes in this epoch, with \p why.
  void close(error why);

  /// Errors: internal (bytes that cannot be read, a rank or an epoch that there is not): nothing more can be read from
  /// that rank, so the world must fail. A batch of an older epoch is dropped.
  [[nodiscard]] error receive(rank from, std::string_view batch, time_point now);

  /// Refuses what has waited past its deadline, with a report of who is missing; finds what straggles.
  void expire(time_point now);
  /// Before this there is nothing for expire() to do.
  [[nodiscard]] time_point next_due() const noexcept;

  /// The next batch for \p to, of a mebibyte or little more; empty where there is none.
  [[nodiscard]] std::string take_outgoing(rank to);
  /// Reports of operations whose peers are late, since the last call. What ranks have launched and finished is not
  /// known here.
  [[nodiscard]] std::vector<std::shared_ptr<const absence_report>> take_straggling();

  /// Requests that wait for peers.
  [[nodiscard]] std::size_t waiting() const noexcept;

private:
  class request;
  struct connection;

  void ask(connection& from, request_record& asked, time_point now);
  void meet_turns();
  void settle();

  sequencer_limits limits_;
  epoch epoch_{};
  std::unique_ptr<sequencer> order_; ///< None before the first epoch.
  std::uint32_t world_ = 0;
  bool closed_ = false;
  std::vector<connection> ranks_;
  std::uint64_t turns_met_ = 0;
  sequencing_effects effects_; ///< Kept for their memory.
  std::vector<std::shared_ptr<const absence_report>> straggling_;
};

} // namespace troupe
