/// Decides the order of all launches of worlds that share GPUs, from requests that arrive in any order.
#pragma once

#include <troupe/collectives/collective_settings.hpp>
#include <troupe/collectives/order/lane_table.hpp>
#include <troupe/collectives/order/sequenced.hpp>
#include <troupe/collectives/progress/absence_report.hpp>
#include <troupe/device/error.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <span>
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

  [[nodiscard]] bool empty() const noexcept { return ends.empty() && refused.empty() && straggling.empty(); }
  void clear() noexcept;
};

/// Matches requests and releases complete operations. A state machine without threads, clock or CAF.
///
/// A collective needs all ranks of its world; it is matched by its position among the collectives of the lane. A send
/// is matched with its recv by lane, source, destination, tag and position among these. A group of sends and receives
/// needs all groups that are connected to it by transfers. A copy needs no other rank. An operation that has all its
/// participants, each at the head of its lane at its rank, is validated (ORD-2) and released. All ranks therefore have
/// one order (ORD-1), which within a lane is the order of its requests.
///
/// Each step changes the waiting requests and notes which operations may now be released. settle() then releases these,
/// and those that become ready as a result.
class sequencer {
public:
  explicit sequencer(sequencer_limits limits = {}) : limits_{limits} {}
  sequencer(const sequencer&) = delete;
  sequencer& operator=(const sequencer&) = delete;

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

  /// Forgets a lane in which no rank will request anything any more: refuses the requests that still wait there with
  /// \p why. A later request in a lane of this name is its first one.
  void retire(std::uint32_t world, lane where, const error& why, sequencing_effects& effects);

  /// Handles the end of a rank's part in the world: refuses its waiting requests and those that need it, and all such
  /// requests that come later, with \p why. Requests that need only other ranks continue.
  void leave(std::uint32_t world, rank self, const error& why, sequencing_effects& effects);

  /// The position of a rank's first request that has not been decided, in one lane.
  struct lane_position {
    troupe::lane lane{};
    std::uint64_t position = 0;
  };
  /// Returns whether the undecided requests of \p world can be asked again in another sequencer, by more or fewer
  /// ranks, and meet the same ones there: no lane remembers a withdrawn operation for ranks that have not asked for it,
  /// and none has a refused request behind one that waits.
  [[nodiscard]] bool can_hand_over(std::uint32_t world) const;
  /// Returns where the lanes of \p self stand. Requires can_hand_over().
  [[nodiscard]] std::vector<lane_position> positions(std::uint32_t world, rank self) const;
  /// Makes the positions of \p self go on from those of another sequencer. Call it before the first request.
  void continue_at(std::uint32_t world, rank self, std::span<const lane_position> positions);

  /// Refuses requests that have waited past their deadline, with a report of the missing ranks, and withdraws their
  /// operations as cancel() does.
  void expire(time_point now, sequencing_effects& effects);
  /// Returns the time before which expire() does nothing; time_point::max() if no request waits.
  [[nodiscard]] time_point next_due() const noexcept { return waiting_ > 0 ? due_ : time_point::max(); }

  /// Returns the number of requests that wait for peers.
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_; }

private:
  /// The newest request of a rank.
  struct mark {
    compact_signature what{};
    troupe::lane lane{};
    bool asked = false;
    std::uint64_t position = 0;
  };
  struct world_table {
    std::uint32_t number = 0;
    int size = 0;
    error closed{}; ///< Set once the world is closed.
    std::vector<std::unique_ptr<lane_table>> lanes{};
    std::vector<std::uint32_t> unreleased{}; ///< Number of unreleased requests, indexed by rank.
    std::vector<mark> last{};
    std::map<rank, error> left{}; ///< Ranks that have left, and why.
    rank first_left{};            ///< The first of them.
  };
  struct place {
    lane_table* at = nullptr;
    int self = 0;
    std::uint64_t position = 0;
  };
  /// A candidate for release: a match; or, if `what` is null, the request at the head of the rank's lane, which needs
  /// no other rank.
  struct candidate {
    lane_table* at = nullptr;
    int self = 0;
    operation_match* what = nullptr;
  };
  /// How the requests of a withdrawn operation are refused. The fields from `first` on select the requests that were
  /// withdrawn themselves; each selects independently.
  struct verdict {
    std::shared_ptr<const withdrawal> cause{};
    error own{};                        ///< For the withdrawn requests. Their peers get the cause.
    const sequenced* first = nullptr;   ///< Selects this request; null selects none.
    rank self{};                        ///< The rank to which `client` refers.
    std::uint64_t client = 0;           ///< Selects all requests of this client; 0 selects none.
    time_point now = time_point::min(); ///< Selects all requests that are due by now.
  };

  [[nodiscard]] error objection(const sequencing_terms& asked) const;
  /// Returns the error for a request of \p self that needs a rank that has left; errc::none if it does not.
  [[nodiscard]] static error absence_objection(const operation& what, rank self, const world_table& there);
  /// Returns whether the request in \p slot, which is one of \p owner, can never be released without \p self.
  [[nodiscard]] static bool needs(const lane_slot& slot, int owner, int self);
  [[nodiscard]] world_table* find_world(std::uint32_t number) const noexcept;
  [[nodiscard]] lane_table& lane_of(world_table& there, lane name);
  [[nodiscard]] lane_table* find_lane(std::uint32_t number, rank self, lane name) const noexcept;
  void join_match(lane_table& at, int self, const compact_signature& what, std::unique_ptr<sequenced> one,
                  sequencing_effects& effects);
  void join_exchange(lane_table& at, int self, std::unique_ptr<sequenced> one, sequencing_effects& effects);
  /// Adds a send or recv to its route. Returns the withdrawal of its other half, or null.
  std::shared_ptr<const withdrawal> join_route(lane_table& at, exchange& joining, const operation& part);
  void join_nobody(lane_table& at, int self, std::unique_ptr<sequenced> one);
  /// Adds the request to its rank's lane, which then owns it. Returns whether it is at the head.
  bool enter(lane_table& at, int self, std::unique_ptr<sequenced> one, operation_match* where);

  // Release.
  /// Counts the new head of the rank's lane, and notes what may be released now.
  void come_to_head(lane_table& at, int self);
  void complete(exchange& root);
  void try_exchange(exchange& root);
  [[nodiscard]] bool is_in_front(exchange& root) const;
  void settle(sequencing_effects& effects);
  void release(collective_match& one, sequencing_effects& effects);
  void release(exchange& root, sequencing_effects& effects);
  /// Collects all exchanges of the closure in members_, by rank and position.
  void collect_members(exchange& root);
  [[nodiscard]] error disagreement(const collective_match& one) const;
  [[nodiscard]] error disagreement(int world_size) const; ///< Checks the exchanges in members_.
  /// Removes a request from its lane.
  std::unique_ptr<sequenced> remove(lane_table& at, int self, std::uint64_t position);

  // Withdrawal.
  void take_out(const place& which, const verdict& why, sequencing_effects& effects);
  void take_out(collective_match& one, const verdict& why, sequencing_effects& effects);
  void take_out(exchange& root, const verdict& why, sequencing_effects& effects);
  void drop(exchange* one) noexcept;
  /// Refuses everything that waits in a lane, and forgets what its ranks have withdrawn.
  void clear(lane_table& at, const error& why, sequencing_effects& effects);

  // Deadlines.
  void note_due(lane_table& at, const sequencing_terms& asked) noexcept;
  void scan(lane_table& at, time_point now, std::vector<place>& expired, std::vector<place>& straggling) const;
  [[nodiscard]] std::shared_ptr<absence_report> report_on(const place& which, time_point now) const;

  sequencer_limits limits_;
  std::pmr::unsynchronized_pool_resource memory_;
  std::vector<std::unique_ptr<world_table>> worlds_;
  node_pool<collective_match> matches_;
  node_pool<exchange> exchanges_;
  node_pool<transfer_end> ends_;
  std::size_t waiting_ = 0;
  time_point due_ = time_point::max(); ///< No request is due before this time.

  // Members so that their memory is reused.
  std::vector<candidate> ready_;
  std::vector<exchange*> members_;
  std::vector<place> expired_;
  std::vector<place> straggling_;
};

} // namespace troupe
