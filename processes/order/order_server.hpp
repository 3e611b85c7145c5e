/// Implements ordering::agreed for a world whose ranks live in separate processes: decides one order for the requests
/// of all ranks, in the controller, or of the ranks of one host.
#pragma once

#include <troupe/collectives/order/resume_log.hpp>
#include <troupe/collectives/order/sequencer.hpp>
#include <troupe/processes/order/codec/decision_codec.hpp>
#include <troupe/processes/order/codec/host_frame.hpp>
#include <troupe/processes/order/codec/request_codec.hpp>
#include <troupe/processes/order/fusion_facts.hpp>
#include <troupe/processes/order/hang_verdict.hpp>
#include <troupe/processes/order/order_continuation.hpp>
#include <troupe/processes/order/turn_table.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A sequencer whose requests arrive as batches of bytes and whose decisions leave as batches. Each rank has one
/// connection, to its order_connection. The caller passes the time; there are neither threads nor a clock here. Serves
/// one world of processes and the worlds that are split off it: all have one order (ORD-3). A split opens its worlds at
/// its turn, the same at all ranks.
///
/// Where ranks of another host have an order service there, two objects share the work
/// (docs/design/0077-order-per-host.md): each world has one place where its order is decided. That is the host's object
/// for the worlds all of whose ranks are on that host, and the controller's for the others. The host's object passes on
/// requests of worlds that span hosts, and inserts the controller's decisions between its own, at the same place for
/// all its ranks (ORD-3).
///
/// After each call that changes its state, send what take_outgoing() returns to every rank. Threads: one at a time.
class order_server {
public:
  explicit order_server(sequencer_limits limits = {});
  ~order_server();

  /// Takes over the commits of the whole world that the processes of the next epoch know (resume_log::learn()).
  void learn(const told_commits& known) { log_.learn(known); }
  /// Returns the last complete commits of the whole world.
  [[nodiscard]] told_commits commits() { return log_.commits(); }

  /// Begins an epoch of the world, later than any before, with \p world_size ranks. Drops the requests of earlier
  /// epochs. Those whose success has not been reported by now do not count as complete (CUT-1).
  /// \p before: after hold(), the rank of the held epoch that each rank was, if any: its positions go on.
  /// Errors: invalid_argument (no rank).
  void open(epoch of, int world_size, std::span<const std::optional<rank>> before = {});
  /// Stops deciding in this epoch: requests that wait, and later ones, get no answer, because their processes ask again
  /// in the next epoch (docs/design/0117-planned-change.md). Returns false, and changes nothing, if they would not all
  /// meet the same requests there (sequencer::can_hand_over()), or if this object does not decide for the whole world.
  [[nodiscard]] bool hold();
  /// In the controller's object, where a host's has held the order: begins another batch for each rank, which the host
  /// passes on behind all its own. A rank that has read as many as batches_for() says has all decisions.
  void mark_held();
  /// After hold(): sets the number of requests of a rank that have succeeded. Its last batches may not have arrived.
  void note_successes(rank from, std::uint64_t count);
  /// Delegates the worlds all of whose ranks are among \p ranks to the order service of another host. Call it after
  /// open(), before the first request.
  void delegate(std::span<const rank> ranks);
  /// Begins an epoch in a host's object, for the ranks of that host, \p present. \p previous: the last epoch that this
  /// object served, if the controller has decided nothing for these ranks since; else 0. \p limits: those of the
  /// controller. \p known: see learn(). \p continued: after hold() in the epoch \p previous, how its positions go on.
  /// Errors: invalid_argument (no rank, or one that does not exist).
  void open_host(epoch of, int world_size, std::span<const rank> present, epoch previous,
                 const sequencer_limits& limits, const told_commits& known = {},
                 const order_continuation& continued = {});
  /// Refuses waiting requests, and all later ones of this epoch, with \p why. A host's object does so for the worlds
  /// that it decides.
  void close(const error& why);
  [[nodiscard]] bool is_closed() const noexcept { return closed_; }

  /// Reads a batch. Errors: internal (the bytes cannot be read, or the rank or epoch does not exist): nothing more can
  /// be read from that rank, so the world must fail. A batch of an older epoch is dropped.
  [[nodiscard]] error receive(rank from, std::string_view batch, time_point now);

  /// Lets a process without a rank, at \p where, which is negative, exchange messages with the ranks of the whole world
  /// in this epoch. Call it after open().
  void attach(process_address where);
  /// Ends that, and tells the ranks, each of which answers with an empty message to \p where. When all have answered,
  /// none will submit a request for that process any more, and its lane is forgotten.
  void detach(process_address where);
  /// Returns the detached processes without a rank for which not all ranks have answered in this epoch. For a host's
  /// object that decides for all ranks also those that begin_with_controller() detaches.
  [[nodiscard]] std::vector<process_address> retiring() const;
  /// Adds processes that an earlier controller had admitted (those of serving_report). Call it after open().
  void expect_farewells(std::span<const process_address> from);
  [[nodiscard]] error receive(process_address from, std::string_view batch);

  /// For a host's object: inserts the controller's decisions into the order of its ranks. \p decided has all parts of
  /// a message (host_frame::is_complete). Errors: internal (the bytes cannot be read): nothing more can be read from
  /// the controller.
  [[nodiscard]] error receive_from_controller(const host_frame& decided);
  /// For a host's object: another controller follows, which knows nothing of earlier batches. All worlds of the epoch
  /// are decided here. Processes without a rank are detached, because their connections have ended with the former
  /// controller; what the ranks have answered for retiring() is repeated.
  void begin_with_controller();
  /// For a host's object: adds the batches for the controller to \p into. If \p all is false, it leaves out the batches
  /// that cannot lead to a decision: successes and reports of progress can wait.
  void take_for_controller(host_frame& into, bool all);

  /// Refuses requests and turns that have waited past their deadline, with a report of the missing ranks, and fails
  /// captures that take too long. Finds operations whose peers are late, for take_straggling().
  void expire(time_point now);
  /// Returns the time before which expire() does nothing.
  [[nodiscard]] time_point next_due() const noexcept;

  /// Returns whether take_outgoing() has a batch for any process.
  [[nodiscard]] bool has_outgoing() const noexcept;
  /// Replaces \p into by the next batch for \p to, of at most longest_batch_bytes. Returns false if there is none.
  [[nodiscard]] bool take_outgoing(rank to, std::string& into);
  [[nodiscard]] bool take_outgoing(process_address to, std::string& into);
  /// As above. Returns the batch; empty if there is none.
  template <class Address>
  [[nodiscard]] std::string take_outgoing(Address to) {
    std::string batch;
    return take_outgoing(to, batch) ? batch : std::string{};
  }
  /// Destroys the requests that were decided last. Optional; once their decisions have been sent, no rank waits for it.
  void tidy() noexcept { spent_.clear(); }
  /// Returns the bytes for a process without a rank that take_outgoing() has not returned.
  [[nodiscard]] std::size_t waiting_bytes(process_address to) const;
  /// Returns the number of batches for \p to in this epoch, including those that take_outgoing() has not returned yet.
  /// A rank that has received as many knows all decisions so far.
  [[nodiscard]] std::uint64_t batches_for(rank to) const noexcept;
  /// Returns reports of operations whose peers are late, found since the last call. They contain the operations that
  /// each rank launched and finished last, according to its latest report.
  [[nodiscard]] std::vector<std::shared_ptr<const absence_report>> take_straggling();

  /// Returns where the lanes of the whole world stood when the present epoch began; null in the first epoch. A
  /// sub-world receives its points when it is opened; it has none after the whole world has changed its size.
  [[nodiscard]] std::shared_ptr<const resume_points> points() const;
  /// Returns, for each rank of each world, the first operation that was released to the rank and has not ended there,
  /// according to the rank's latest report. An operation that is the first of several ranks is returned once.
  [[nodiscard]] std::vector<open_operation> open_operations() const;
  /// Returns the number of requests that wait for peers.
  [[nodiscard]] std::size_t waiting() const noexcept;

private:
  class request;
  /// Where the lanes of ranks stand.
  using lane_positions = std::vector<std::pair<rank, std::vector<sequencer::lane_position>>>;
  struct connection;
  struct passing;
  struct attached_process;
  struct member;
  struct world;
  struct world_log {
    resume_log log{};
    std::vector<rank> members{}; ///< Their ranks in the whole world.
  };

  [[nodiscard]] world& whole() const { return *worlds_.front(); }
  /// Returns the member of world \p number whose rank has the connection \p by; null if there is none.
  [[nodiscard]] member* find_member(std::uint64_t number, const connection& by) const;
  /// Handles a record. Sets \p failure if the record is invalid.
  void take(connection& by, request_record& one, time_point now, error& failure);
  void ask(member& from, request_record& asked, time_point now);
  /// Handles a record of a world for which this object does not decide.
  void pass_on(member& from, request_record& one, error& failure);
  /// Adds a message to the batch for a rank.
  void write_message(connection& to, const decision_record& message);
  /// Passes on a message of \p from to another process of the same world.
  void pass_message(const member& from, request_record& one, error& failure);
  void follow(connection& to, decision_record& one);
  /// Handles the empty message by which a rank answers the end of process \p who.
  void take_farewell(const member& from, process_address who);
  /// Forgets the lane of \p who if all ranks have answered. Returns whether they have.
  bool retire(process_address who, const std::vector<char>& answered);
  /// For a host's object: handles a message that the controller passes on.
  void note_visitor(const decision_record& message);
  /// Opens the order for a group of a split of \p parent.
  /// \p share: see value_share().
  world& open_group(const world& parent, const rank_group& group, std::uint64_t number, const told_commits& known,
                    std::size_t share);
  /// Opens the order of a world. An entry of \p ranks is null if that rank is on another host.
  world& open_world(std::uint64_t number, std::string key, std::string name, const std::vector<connection*>& ranks);
  void begin_log(world& of, resume_log& log);
  void begin(epoch of, int world_size);
  /// After hold(): returns where the lanes of the next epoch's ranks stand; see open().
  [[nodiscard]] lane_positions held_positions(std::span<const std::optional<rank>> before) const;
  /// Drops the resume logs of sub-worlds: if \p of_others is false, of those all of whose ranks are among \p ranks;
  /// else of all others.
  void drop_logs(std::span<const rank> ranks, bool of_others);
  [[nodiscard]] connection* find_rank(rank one) const noexcept;
  /// Ends a rank's part in a world.
  void leave(member& from, const error& why);
  /// Writes the answers of world::turns into the batches of its ranks.
  void write_turns(const world& of);
  /// Returns a copy of \p report with the operations that the ranks launched and finished last. Consecutive calls with
  /// the same report return the same copy.
  [[nodiscard]] std::shared_ptr<absence_report> completed(const std::shared_ptr<absence_report>& report,
                                                          const world& of);
  void settle();
  /// Makes the value of the released requests if they are an agree; null if they are not. Sets \p why if there is none
  /// because it is too large.
  [[nodiscard]] static std::shared_ptr<agreed_value> decide(std::span<const std::unique_ptr<sequenced>> released,
                                                            error& why);
  /// Returns an error if the ranks of an operation use different places of registered memory.
  [[nodiscard]] static error places_objection(std::span<const std::unique_ptr<sequenced>> released);
  /// Returns whether the released requests of one operation of \p of are launched together with the operation before.
  [[nodiscard]] bool joins_previous(const world& of, std::span<const std::unique_ptr<sequenced>> released);

  sequencer_limits limits_;
  bool is_host_ = false; ///< Whether this is a host's object.
  epoch epoch_{};
  std::unique_ptr<sequencer> order_; ///< Null before the first epoch.
  bool closed_ = false;
  bool held_ = false;
  std::vector<std::unique_ptr<connection>> ranks_;       ///< In a host's object, null for ranks of other hosts.
  std::map<process_address, attached_process> attached_; ///< Processes without a rank.
  /// Detached processes without a rank, and which ranks have answered.
  std::map<process_address, std::vector<char>> retiring_;
  /// In a host's object that decides for all ranks: the attached processes that have sent a rank a message.
  std::set<process_address> visitors_;
  std::vector<std::unique_ptr<world>> worlds_; ///< The first is the whole world.
  std::uint64_t next_number_ = 0;              ///< The number of the next world that is opened here.
  turn_table::answers turn_answers_;           ///< A member so that its memory is reused.
  request_record record_;                      ///< As above.
  wire_writer value_;                          ///< As above: the value of the agree that is released, encoded once.
  resume_log log_;                             ///< The resume log of the whole world.
  /// The resume logs of sub-worlds, by key. Dropped when the whole world changes its size.
  std::map<std::string, world_log> logs_;
  std::vector<rank> participants_; ///< A member so that its memory is reused.
  fusion_composer composer_;
  const world* composed_ = nullptr;          ///< The world whose operations are composed.
  std::uint64_t launch_ = 0;                 ///< Number of launches, each of one or several operations.
  std::vector<fusion_composer::part> parts_; ///< A member so that its memory is reused.
  sequencing_effects effects_, spent_;       ///< Members so that their memory is reused.
  std::vector<std::shared_ptr<const absence_report>> straggling_;
  std::shared_ptr<absence_report> incomplete_; ///< The argument of the last call of completed().
  std::shared_ptr<absence_report> completed_;  ///< Its result.
};

} // namespace troupe
