/// The controller's side of ordering::agreed over processes: one order for the requests of a world's ranks, each of
/// which lives in its own process.
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

/// A sequencer whose requests arrive as batches of bytes and whose decisions leave as batches. Each rank has one
/// connection, to its distributed_order. The caller passes the time; there are neither threads nor a clock here. Serves
/// one world only: several worlds on the same GPUs need one order above them all (arbiter).
///
/// After each call that changes its state, send what take_outgoing() returns to every rank. Threads: one at a time.
class order_keeper {
public:
  explicit order_keeper(sequencer_limits limits = {});
  ~order_keeper();

  /// Begins an epoch of the world, later than any before, with \p world_size ranks. Requests of earlier epochs are
  /// forgotten.
  /// Errors: invalid_argument (no rank).
  void open(epoch of, int world_size);
  /// Refuses waiting requests, and all later ones of this epoch, with \p why.
  void close(error why);

  /// Reads a batch. Errors: internal (the bytes cannot be read, or the rank or epoch does not exist): nothing more can
  /// be read from that rank, so the world must fail. A batch of an older epoch is dropped.
  [[nodiscard]] error receive(rank from, std::string_view batch, time_point now);

  /// Refuses requests that have waited past their deadline, with a report of the missing ranks. Finds straggling
  /// operations.
  void expire(time_point now);
  /// Returns the time before which expire() does nothing.
  [[nodiscard]] time_point next_due() const noexcept;

  /// Returns the next batch for \p to, of about one mebibyte at most; empty if there is none.
  [[nodiscard]] std::string take_outgoing(rank to);
  /// Returns reports of operations whose peers are late, found since the last call. They do not say what ranks have
  /// launched and finished, because this is not known here.
  [[nodiscard]] std::vector<std::shared_ptr<const absence_report>> take_straggling();

  /// Returns the number of requests that wait for peers.
  [[nodiscard]] std::size_t waiting() const noexcept;

private:
  class request;
  struct connection;

  void ask(connection& from, request_record& asked, time_point now);
  void meet_turns();
  void settle();

  sequencer_limits limits_;
  epoch epoch_{};
  std::unique_ptr<sequencer> order_; ///< Null before the first epoch.
  std::uint32_t world_ = 0;
  bool closed_ = false;
  std::vector<connection> ranks_;
  std::uint64_t turns_met_ = 0;
  sequencing_effects effects_; ///< A member to reuse its memory.
  std::vector<std::shared_ptr<const absence_report>> straggling_;
};

} // namespace troupe
