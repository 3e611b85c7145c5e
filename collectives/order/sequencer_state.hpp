/// The sequencer's tables and the steps on them. A step changes what waits and notes what may now be released. settle()
/// then releases these operations, and those that become ready by that.
#pragma once

#include <troupe/collectives/order/lane_table.hpp>
#include <troupe/collectives/order/sequencer.hpp>

#include <memory_resource>

namespace troupe {

/// The state of a sequencer.
class sequencer::state {
public:
  explicit state(sequencer_limits limits) : limits_{limits} {}

  // sequencer.cpp: checks requests and joins them.
  std::uint32_t open_world(int size);
  void ask(std::unique_ptr<sequenced> one, sequencing_effects& effects);

  // sequencer_withdrawal.cpp
  void close_world(std::uint32_t world, const error& why, sequencing_effects& effects);
  bool cancel(std::uint32_t world, rank self, lane where, std::uint64_t position, sequencing_effects& effects);
  void withdraw(std::uint32_t world, rank self, std::uint64_t client, const error& why, sequencing_effects& effects);

  // sequencer_release.cpp
  void hold(std::uint32_t world, lane where);
  void resume(std::uint32_t world, lane where, sequencing_effects& effects);

  // sequencer_due.cpp
  void expire(time_point now, sequencing_effects& effects);
  [[nodiscard]] time_point next_due() const noexcept { return waiting_ > 0 ? due_ : time_point::max(); }

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
    std::vector<std::uint32_t> unreleased{}; ///< By rank.
    std::vector<mark> last{};
  };
  struct place {
    lane_table* at = nullptr;
    int self = 0;
    std::uint64_t position = 0;
  };
  /// A candidate for release: a gathering; or, if `what` is null, the request at the head of the rank's lane, which
  /// needs no other rank.
  struct candidate {
    lane_table* at = nullptr;
    int self = 0;
    gathering* what = nullptr;
  };
  /// How the requests of a withdrawn operation are refused.
  struct verdict {
    std::shared_ptr<const withdrawal> cause{};
    error own{};                        ///< For the withdrawn requests themselves. Their peers get the cause.
    const sequenced* first = nullptr;   ///< The withdrawn request; or
    rank self{};                        ///< all requests at this rank
    std::uint64_t client = 0;           ///< of this client, if not 0; or
    time_point now = time_point::min(); ///< all requests that are due by now.
  };

  [[nodiscard]] error objection(const sequencing_terms& asked) const;
  [[nodiscard]] world_table* find_world(std::uint32_t number) const noexcept;
  [[nodiscard]] lane_table& lane_of(world_table& there, lane name);
  [[nodiscard]] lane_table* find_lane(std::uint32_t number, rank self, lane name) const noexcept;
  void join_meeting(lane_table& at, int self, const compact_signature& what, std::unique_ptr<sequenced> one,
                    sequencing_effects& effects);
  void join_exchange(lane_table& at, int self, std::unique_ptr<sequenced> one, sequencing_effects& effects);
  /// Returns why the other half was withdrawn, if it was.
  std::shared_ptr<const withdrawal> join_route(lane_table& at, exchange& joining, const operation& part);
  void join_nobody(lane_table& at, int self, std::unique_ptr<sequenced> one);
  /// Adds the request to its rank's lane, which owns it then. Returns whether it is at the head.
  bool enter(lane_table& at, int self, std::unique_ptr<sequenced> one, gathering* where);

  // sequencer_release.cpp
  /// Counts the new head of the rank's lane, and notes what may be released now.
  void come_to_head(lane_table& at, int self);
  void complete(exchange& root);
  void try_exchange(exchange& root);
  [[nodiscard]] bool is_in_front(exchange& root) const;
  void settle(sequencing_effects& effects);
  void release(meeting& one, sequencing_effects& effects);
  void release(exchange& root, sequencing_effects& effects);
  /// Collects all exchanges of the closure in members_, by rank and position.
  void collect_members(exchange& root);
  [[nodiscard]] error disagreement(const meeting& one) const;
  [[nodiscard]] error disagreement(int world_size) const; ///< Checks the exchanges in members_.
  /// Removes a request from its lane.
  std::unique_ptr<sequenced> remove(lane_table& at, int self, std::uint64_t position);

  // sequencer_withdrawal.cpp
  void take_out(const place& which, const verdict& why, sequencing_effects& effects);
  void take_out(meeting& one, const verdict& why, sequencing_effects& effects);
  void take_out(exchange& root, const verdict& why, sequencing_effects& effects);
  void drop(exchange* one) noexcept;

  // sequencer_due.cpp
  void note_due(lane_table& at, const sequencing_terms& asked) noexcept;
  void scan(lane_table& at, time_point now, std::vector<place>& expired, std::vector<place>& straggling);
  [[nodiscard]] std::shared_ptr<absence_report> report_on(const place& which, time_point now) const;

  sequencer_limits limits_;
  std::pmr::unsynchronized_pool_resource memory_;
  std::vector<std::unique_ptr<world_table>> worlds_;
  node_pool<meeting> meetings_;
  node_pool<exchange> exchanges_;
  node_pool<transfer_end> ends_;
  std::size_t waiting_ = 0;
  time_point due_ = time_point::max(); ///< No request is due before.

  // Members to reuse their memory.
  std::vector<candidate> ready_;
  std::vector<exchange*> members_;
  std::vector<place> expired_;
  std::vector<place> straggling_;
};

} // namespace troupe
