/// Decides the order of the requests of the processes of a world: those of the same host reach it through rings in
/// shared memory, the others through their control connections or through the order service of their host.
#pragma once

#include <troupe/completion/completion_settings.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/processes/order/order_server.hpp>
#include <troupe/processes/transport/shared_memory/ring_connection.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// Settings of an order_service.
struct order_service_settings {
  sequencer_limits limits{};
  wait_profile wait{}; ///< `nap` is not used: the thread parks until a rank wakes it.
  /// Longest sleep of the parked thread. A process that ends while it writes wakes nobody, and a hostile one can
  /// suppress the wake-ups of others: this bounds the delay.
  nanoseconds park{std::chrono::milliseconds{5}};
  /// Interval between checks of the processes and of the deadlines of requests.
  nanoseconds check_interval{std::chrono::milliseconds{5}};
  /// Replaces `park` and `check_interval` after there has been no work for `idle_after`.
  nanoseconds idle_park{std::chrono::milliseconds{50}};
  nanoseconds idle_after{std::chrono::seconds{1}};
  /// A process without a rank for which more bytes wait, because it reads its rings more slowly than the ranks answer
  /// it, is detached.
  std::size_t most_waiting_bytes = std::size_t{64} << 20U;
  /// Called by run() when take_losses() or take_straggling() has something new. May be empty. Must neither block nor
  /// throw.
  std::function<void()> on_news{};
};

/// How an order_service reaches a rank.
struct order_route {
  /// The rings of a rank on this host. If there are none, the owner passes the rank's batches to receive().
  std::optional<ring_connection> rings{};
  /// Sends a batch of decisions to a rank without rings. Must neither block, throw nor call the service.
  std::function<void(std::string batch)> send{};
};

/// The ranks of another host that have an order service there.
struct host_route {
  std::vector<rank> ranks{};
  /// Sends a message to that service. Must neither block, throw nor call this service.
  std::function<void(std::string message)> send{};
};

/// Reads the rings of the ranks that have them, decides with an order_server, and sends each rank the decisions that
/// concern it.
///
/// A rank is closed if its process has ended, if it has written data that cannot be read, or if it falls behind with
/// reading its decisions. This also closes the epoch: the waiting requests of the remaining ranks are refused
/// (communicator_failed). While decisions for a rank wait for room, no more of its requests are read, so its share of
/// memory is bounded.
///
/// On a host without the controller, this class serves the ranks of that host (open_host()) and exchanges messages with
/// the controller's service. There it does not end epochs, but reports lost ranks to the controller.
///
/// Threads: all functions may be called from any thread. run() is for a thread of its own. Other calls wait for at most
/// one round of run().
class order_service {
public:
  explicit order_service(const order_service_settings& settings = {}) : settings_{settings}, order_{settings.limits} {}

  /// Returns the doorbell for ring_connection::offer(). Made by the first call. Errors: out_of_memory, unsupported.
  [[nodiscard]] std::shared_ptr<shared_doorbell> bell();

  /// See order_server. Call them before open().
  void learn(const told_commits& known);
  [[nodiscard]] told_commits commits();
  /// Begins an epoch, with the route to each rank in order. Earlier routes and losses are dropped.
  /// Errors: invalid_argument (no rank).
  /// \p before: see order_server::open().
  void open(epoch of, std::vector<order_route> ranks, std::vector<host_route> hosts = {},
            std::span<const std::optional<rank>> before = {});
  /// Begins an epoch on a host without the controller. \p ranks: the rings of the ranks that are on this host.
  /// \p to_controller: sends a message to the controller's service; must neither block, throw nor call this service.
  /// \p previous, \p limits, \p known, \p continued: see order_server::open_host(). Errors: invalid_argument (no rank,
  /// or one that does not exist).
  void open_host(epoch of, int world_size, std::vector<std::pair<rank, ring_connection>> ranks, epoch previous,
                 const sequencer_limits& limits, std::function<void(std::string message)> to_controller,
                 const told_commits& known = {}, const order_continuation& continued = {});
  /// Lets a process without a rank exchange messages with the ranks in the present epoch. Its address \p where is
  /// negative. An earlier route to it is dropped. Does nothing before the first epoch. Only in the controller's object.
  void attach(process_address where, order_route route);
  void detach(process_address where);
  /// Returns the detached processes whose requests the ranks may still submit: see order_server::retiring().
  [[nodiscard]] std::vector<process_address> retiring() const;
  /// See order_server::expect_farewells().
  void expect_farewells(std::span<const process_address> from);
  /// As receive(), from a process without a rank. Errors: internal (it cannot be read): nothing more can be read from
  /// it in this epoch.
  [[nodiscard]] error receive(process_address from, std::string_view batch, time_point now);
  /// Returns the processes without a rank whose rings have failed, with the reasons. They are detached.
  [[nodiscard]] std::vector<std::pair<process_address, error>> take_detached();

  /// Sends the controller nothing more in the epoch of open_host(), because that controller is lost.
  void leave_controller();
  /// Goes on with another controller, whose messages and those to it are numbered anew. Lost ranks that could not be
  /// reported are. Processes without a rank are detached (order_server::begin_with_controller()).
  void join_controller();
  /// Handles a message of the controller's service. Errors: internal (it cannot be read).
  [[nodiscard]] error receive_from_controller(std::string_view message, time_point now);
  /// Handles a message of the service of another host, the \p host-th of open(). Errors: internal (it cannot be read).
  [[nodiscard]] error receive_from_host(std::size_t host, std::string_view message, time_point now);
  /// Refuses waiting requests, and all later ones of this epoch. All decisions have been written or sent when it
  /// returns, except those for which a ring has no room; batches_for() counts them.
  void close(const error& why, time_point now);
  /// Returns whether nothing more is decided in this epoch.
  [[nodiscard]] bool is_closed() const;
  /// See order_server::hold(). All decisions until then have been written or sent when it returns, as after close().
  [[nodiscard]] bool hold(time_point now);
  /// See order_server::mark_held().
  void mark_held(time_point now);
  /// See order_server::note_successes(). Does nothing in other epochs.
  void note_successes(rank from, epoch of, std::uint64_t count);
  /// Handles a batch that did not arrive through rings. If the rank has rings and nothing has arrived through them, its
  /// process could not accept them: its decisions go through order_route::send from now on. Errors: those of
  /// order_server::receive(); internal (the rank uses its rings).
  [[nodiscard]] error receive(rank from, std::string_view batch, time_point now);
  /// Closes the rings of a rank whose process has left the world. This does not count as a loss.
  void release(rank one);
  /// Refuses requests whose deadline has passed. run() does so too while there are rings.
  void expire(time_point now);

  /// Does one round: reads at most one message of each rank, and writes what was decided. Returns whether there was
  /// anything to do. Never waits.
  bool poll(time_point now);
  /// Returns how long run() may sleep after a round at \p now that had nothing to do; 0: it spins. If there has been no
  /// work for `idle_after`, it also puts the next check off.
  [[nodiscard]] nanoseconds rest(time_point now);
  /// Does rounds until stop(). Between them spins and parks by the profile; without any ring it sleeps.
  void run();
  /// Ends run().
  void stop();

  /// A rank that was closed.
  struct loss {
    epoch of;
    troupe::rank rank{0};
    error why;
  };
  /// Returns the losses since the last call, in the order in which they were found. The first loss of an epoch has
  /// ended it.
  [[nodiscard]] std::vector<loss> take_losses();
  [[nodiscard]] std::vector<std::shared_ptr<const absence_report>> take_straggling();
  /// Returns where the lanes stood when the latest epoch began (order_server::points()).
  [[nodiscard]] std::shared_ptr<const resume_points> points() const;
  /// Returns the number of ranks that are connected by rings to this object.
  [[nodiscard]] std::size_t connected() const noexcept { return connected_.load(std::memory_order_relaxed); }
  /// Returns the open operations of epoch \p of, the latest (order_server::open_operations()); none for other epochs.
  [[nodiscard]] std::vector<open_operation> open_operations(epoch of) const;
  /// Returns whether a rank has rings, here or in its host.
  [[nodiscard]] bool has_rings(rank one) const;
  /// Returns the number of batches of decisions for a rank in epoch \p of, the latest; 0 for other epochs.
  [[nodiscard]] std::uint64_t batches_for(rank to, epoch of) const;

private:
  /// A rank, or a process without a rank.
  struct place {
    process_address where{};
    order_route route{};
    bool has_written = false; ///< Whether a message has arrived through the rings.
    bool has_host = false;    ///< Whether the service of its host has its rings.

    [[nodiscard]] bool is_rank() const noexcept { return where.value() >= 0; }
    [[nodiscard]] rank self() const noexcept { return rank{where.value()}; }
  };
  struct remote_host {
    host_route route;
    bool is_closed = false; ///< Whether host_frame::closed was sent to it.
  };

  void begin(epoch of, std::vector<place> ranks);
  /// Locks mutex_ for a caller, before the next round of run().
  [[nodiscard]] std::unique_lock<std::mutex> enter() const;
  bool do_round(time_point now);
  [[nodiscard]] place* find(rank one);
  void drop_route(process_address where);
  bool read(place& from, time_point now);
  void deliver_to(place& to, time_point now);
  bool check(time_point now);
  void deliver(time_point now);
  /// As deliver(), and closes the ranks whose rings have failed. Returns whether there were any.
  bool deliver_all(time_point now);
  void deliver_to(remote_host& host);
  /// Sends the pending records to the controller; if \p all is false, only those that can lead to a decision.
  void deliver_to_controller(bool all);
  void lose(place& one, error why);
  /// Ends the order of the epoch, unless it has ended.
  void end(const error& why);
  /// Returns why \p one can no longer be served; nullopt if it can.
  [[nodiscard]] std::optional<error> failure_of(const place& one) const;
  void drop_rings(place& one);
  [[nodiscard]] bool is_any_waiting() const;
  /// As rest(). Call it with mutex_ locked.
  [[nodiscard]] nanoseconds find_rest(time_point now);
  /// Sleeps until a process writes, for at most \p span.
  void park(nanoseconds span);

  const order_service_settings settings_;
  mutable std::mutex mutex_;
  mutable std::atomic<int> callers_{0}; ///< Threads that wait for mutex_. run() yields to them.
  condition changed_;                   ///< Rings were opened, or stop() was called.
  std::shared_ptr<shared_doorbell> bell_;
  order_server order_;
  epoch epoch_{};
  std::vector<place> places_;                               ///< The ranks by number, then processes without a rank.
  std::vector<std::pair<process_address, error>> detached_; ///< See take_detached().
  std::vector<remote_host> hosts_;
  error closed_{}; ///< Why nothing more is decided in this epoch; errc::none while it is open.
  int world_size_ = 0;
  // Used only on a host without the controller:
  std::function<void(std::string message)> to_controller_{};
  bool has_controller_ = false;
  host_frame for_controller_{};
  host_frame from_controller_{}; ///< The received parts of an incomplete message.
  std::atomic<std::size_t> connected_{0};
  std::vector<loss> losses_;
  std::vector<std::shared_ptr<const absence_report>> straggling_;
  time_point next_check_{};
  time_point last_work_{}; ///< The last round that had something to do.
  std::atomic<bool> is_stopped_{false};
  std::string message_; ///< A member to reuse its memory.
  std::string batch_;   ///< As above.
};

} // namespace troupe
