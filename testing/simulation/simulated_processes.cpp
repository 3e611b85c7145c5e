#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_backend.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_local_meeting.hpp>
#include <troupe/collectives/operation/extents.hpp>
#include <troupe/processes/control/control_codec.hpp>
#include <troupe/processes/control/driver_session.hpp>
#include <troupe/processes/control/host_session.hpp>
#include <troupe/processes/control/process_session.hpp>
#include <troupe/testing/simulation/process_groups.hpp>
#include <troupe/testing/simulation/simulated_link.hpp>
#include <troupe/testing/simulation/simulated_processes.hpp>

#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

namespace troupe::simulation {

namespace {

using namespace std::chrono_literals;

constexpr nanoseconds look_every = 20ms; ///< The interval of ticks, the same as in controller_connection.
constexpr nanoseconds farewell = 300ms;
/// The time in which a process that was removed from its world answers its clients, before it ends.
constexpr nanoseconds removal_grace = 100ms;
/// The time until a transport gives up a connection whose other end is gone. It is longer than the suspicion time.
constexpr nanoseconds longest_unnoticed = 350ms;
/// The longest time until another controller takes the place of one that was killed.
constexpr nanoseconds most_without_controller = 300ms;
/// The time in which a controller must answer before another one is tried, if there are several.
constexpr nanoseconds longest_handshake = 30ms;
/// The longest time until another order service takes the place of one that was killed.
constexpr nanoseconds most_without_service = 100ms;
/// The end of a process that SIGKILL ends, as its launcher sees it.
constexpr launch::exit_status killed{.signal = SIGKILL};
/// The time in which processes find an order service of their host, for which they look once a second, and tell the
/// controller.
constexpr nanoseconds time_to_find_a_service = 1100ms;
/// No thread spins, because virtual time would not advance meanwhile.
constexpr wait_profile ring_wait{.spin = 0ns, .nap = 500us};

controller_terms controller_terms_of(const scenario& of) {
  return {
      .world_size = world_size_of(of),
      .recovery = of.recovery,
      .heartbeat = 25ms,
      .suspicion = 150ms,
      .gather = 600ms,
      .form = of.limits.form + 100ms,
      .drain = of.limits.drain,
      .settle = 5ms,
      .judge = 50ms,
      .link_retry = 100ms,
      .link_retry_most = 400ms,
      .clock_skew = nanoseconds::max(), // processes report the real time, not the virtual one
      .has_successors = of.processes->has_standby,
  };
}

control_sources sources_of(const scenario& of, std::uint64_t number) {
  return {.draw_session = [chance = prng{mix(of.seed, 13, number)}]() mutable { return chance.next() | 1U; },
          .wall_clock = [] { return std::int64_t{0}; }};
}

/// The time until a process has reported its successes to the controller: it ticks every 20 ms, may have to wait until
/// the controller has seen two batches, and messages take up to 4 ms.
constexpr nanoseconds time_to_tell_successes = 50ms;

/// Returns whether a process that was started may be unable to join.
bool may_keep_away(fault_kind one) {
  return separates(one) || is_of_time(one) || is_of_store(one) || one == fault_kind::stopped_process ||
         one == fault_kind::cut_link || one == fault_kind::slow_link || one == fault_kind::jump ||
         one == fault_kind::lost_controller;
}

/// Returns whether an order service or a process may need more time than usual, or may end unnoticed.
bool may_delay_a_service(fault_kind one) {
  return separates(one) || is_of_time(one) || is_of_store(one) || one == fault_kind::stopped_process ||
         one == fault_kind::slow_link || one == fault_kind::cut_link || one == fault_kind::jump ||
         one == fault_kind::lost_controller || one == fault_kind::stopped_service || one == fault_kind::cut_service;
}

/// Returns whether an order service may come back late to the controller that takes its epoch over.
bool may_keep_a_service_away(fault_kind one) {
  return is_of_service(one) || separates(one) || is_of_time(one) || is_of_store(one) || one == fault_kind::jump;
}

bool delays_messages(fault_kind one) {
  return separates(one) || is_of_time(one) || is_of_store(one) || one == fault_kind::killed_process ||
         one == fault_kind::stopped_process || one == fault_kind::cut_link || one == fault_kind::slow_link ||
         one == fault_kind::jump || one == fault_kind::killed_service || one == fault_kind::stopped_service ||
         one == fault_kind::cut_service;
}

/// Forwards the calls of one communicator to another injector, with the formation number of its epoch. Once the process
/// has been killed, communicators cannot form, and nothing is launched.
class process_faults final : public fault_injector {
public:
  process_faults(std::shared_ptr<fault_injector> to, epoch of, std::shared_ptr<const bool> is_dead)
    : to_{std::move(to)}, formation_{of.value() - 1}, is_dead_{std::move(is_dead)} {}

  void before_init(const fault_place& who) override {
    to_->before_init(as_here(who));
    if (*is_dead_) throw exception{errc::abandoned, "the process has been killed"};
  }
  [[nodiscard]] bool before_launch(const fault_place& who, std::span<const operation* const> all) override {
    if (*is_dead_) return false;
    const bool reaches = to_->before_launch(as_here(who), all);
    if (*is_dead_) throw exception{errc::abandoned, "the process has been killed"};
    return reaches;
  }
  void in_place_of_launch(const fault_place& who, stream_ref into) override {
    to_->in_place_of_launch(as_here(who), into);
  }
  void before_check(const fault_place& who) override { to_->before_check(as_here(who)); }
  void before_abort(const fault_place& who) override { to_->before_abort(as_here(who)); }
  void after_abort(const fault_place& who) override { to_->after_abort(as_here(who)); }

private:
  [[nodiscard]] fault_place as_here(fault_place who) const {
    who.formation = formation_;
    return who;
  }

  std::shared_ptr<fault_injector> to_;
  std::uint64_t formation_;
  std::shared_ptr<const bool> is_dead_;
};

/// The meetings of a simulated process: those of its node if all ranks of the formation are there, as in
/// process_meetings.
class node_meetings final : public one_shot_meeting_place {
public:
  explicit node_meetings(std::shared_ptr<one_shot_meeting_place> of_node) : of_node_{std::move(of_node)} {}

  [[nodiscard]] std::shared_ptr<one_shot_meeting> meeting_of(const unique_id& id, int world_size) override {
    if (is_one_ && noted_ == id.bytes) return of_node_->meeting_of(id, world_size);
    return std::make_shared<no_meeting>();
  }
  void note_node(const unique_id& formation, bool is_one) override {
    noted_ = formation.bytes;
    is_one_ = is_one;
  }

private:
  class no_meeting final : public one_shot_meeting {
  public:
    [[nodiscard]] std::string absence() const override { return "the processes are on several hosts"; }
    [[nodiscard]] one_shot_peers meet(rank, one_shot_offer) override { return {.why = absence()}; }
    void abort() noexcept override {}
    [[nodiscard]] std::shared_ptr<one_shot_meeting> derived(const derivation&, int) override {
      return std::make_shared<no_meeting>();
    }
  };

  const std::shared_ptr<one_shot_meeting_place> of_node_;
  decltype(unique_id::bytes) noted_{};
  bool is_one_ = false;
};

} // namespace

/// The common part of a process and a driver: a group of fibers, and a connection to the controller.
class simulated_processes::connected : public std::enable_shared_from_this<connected> {
public:
  connected(simulated_processes& above, fibers::group group, prng chance, int host)
    : above_{above}, group_{group}, chance_{chance} {
    fibers::current()->set_clock(group_, above_.clocks_[static_cast<std::size_t>(host)]);
  }
  virtual ~connected() = default;
  connected(const connected&) = delete;
  connected& operator=(const connected&) = delete;

  /// Stops its threads for \p span.
  void suspend(nanoseconds span);
  /// Returns whether its threads have been stopped for longer than \p span.
  [[nodiscard]] bool is_away_for(nanoseconds span) const { return is_stopped_ && virtual_now() - stopped_at_ > span; }
  /// Returns the controller to which it is connected; 0: none.
  [[nodiscard]] simulated_controllers::number controller() const noexcept {
    return connection_ ? connection_->controller : 0;
  }
  /// Ends the connection as the controller does, which knows of it.
  void cut_off();
  /// Discards what is on its way.
  void drop_links() noexcept {
    if (!connection_) return;
    connection_->up->drop();
    connection_->down->drop();
  }
  /// Breaks the connection. Each end detects this soon, or only by the other's silence.
  void cut();
  void slow_down(nanoseconds span);
  /// Lets one end, or both, read slowly for \p span.
  void read_slowly(nanoseconds span);
  /// Lets messages take \p delay longer, also those of later connections.
  void lengthen(nanoseconds delay);
  /// Holds all messages back for \p span, in one direction or in both. No connection can be made meanwhile.
  void partition(nanoseconds span);
  /// Sends \p bytes from the controller to this end, through the connection numbered \p through.
  void carry(std::uint64_t through, std::string bytes);
  [[nodiscard]] fibers::group group() const noexcept { return group_; }
  /// Returns the number of connections that it has made.
  [[nodiscard]] std::size_t connections() const noexcept { return connections_; }

protected:
  /// Returns whether it has ended. It then neither sends nor receives.
  [[nodiscard]] virtual bool has_ended() const = 0;
  /// Returns its place, or -1 for a driver.
  [[nodiscard]] virtual int place_or_none() const = 0;
  /// Called when a connection has been made. Returns the first message.
  [[nodiscard]] virtual std::string introduce() = 0;
  virtual void receive(const std::string& bytes) = 0;
  /// Called when this end detects that the connection has broken.
  virtual void broken(const error& why) = 0;

  void connect();
  void send(std::string bytes);
  [[nodiscard]] session_services session_with(std::shared_ptr<const clock> time) {
    return {.time = std::move(time), .send = [weak = weak_from_this()](std::string bytes) {
              if (const auto self = weak.lock()) self->send(std::move(bytes));
            }};
  }
  /// Ends the connection. If \p loses, messages in transit and the end of the connection do not arrive.
  void disconnect(bool loses);
  /// Suspends the calling fiber while this object's fibers are stopped.
  void await_awake() const;
  /// Lets this end notice soon that the connection has ended.
  void notice_soon();
  /// Ends a connection because the controller does not read what waits for it.
  void give_up();
  /// The controller ends connection \p number because this end does not read what waits for it.
  void give_up_by_controller(std::uint64_t number);

  simulated_processes& above_;
  const fibers::group group_;
  prng chance_;
  bool is_searching_ = false; ///< A connection is being made.
  bool is_stopped_ = false;
  time_point stopped_at_{};
  time_point reachable_from_{}; ///< The end of the latest partition.
  nanoseconds delay_{};         ///< See lengthen().

private:
  struct connection {
    std::uint64_t number;
    simulated_controllers::number controller;
    std::unique_ptr<simulated_link> up, down;
  };
  std::optional<connection> connection_;
  std::size_t connections_ = 0;
  std::size_t attempts_ = 0; ///< Each tries the next of the controllers' addresses.
};

void simulated_processes::connected::suspend(nanoseconds span) {
  if (has_ended() || std::exchange(is_stopped_, true)) return;
  stopped_at_ = virtual_now();
  fibers::current()->suspend(group_);
  above_.later(span, [self = shared_from_this()] {
    self->is_stopped_ = false;
    fibers::current()->resume(self->group_);
  });
}

void simulated_processes::connected::cut() {
  disconnect(true);
  if (chance_.one_in(2)) notice_soon(); // else this end detects the silence later
}

void simulated_processes::connected::cut_off() {
  if (!connection_) return;
  const connection gone = *std::exchange(connection_, std::nullopt);
  above_.connections_.erase(gone.number);
  notice_soon();
}

void simulated_processes::connected::notice_soon() {
  const fibers::group_scope in_group{group_};
  above_.later(chance_.within(20ms), [self = shared_from_this()] {
    if (!self->has_ended() && !self->connection_)
      self->broken({.code = errc::communicator_failed, .text = "the connection has broken"});
  });
}

void simulated_processes::connected::slow_down(nanoseconds span) {
  if (!connection_) return;
  const std::size_t which = chance_.below(3);
  if (which != 0) connection_->up->stall(span);
  if (which != 1) connection_->down->stall(span);
}

void simulated_processes::connected::read_slowly(nanoseconds span) {
  if (!connection_) return;
  const std::size_t which = chance_.below(3);
  const nanoseconds apart = 1ms + chance_.within(20ms);
  if (which != 0) connection_->up->slow_down(span, apart);
  if (which != 1) connection_->down->slow_down(span, apart);
}

void simulated_processes::connected::lengthen(nanoseconds delay) {
  delay_ = std::max(delay_, delay);
  if (!connection_) return;
  connection_->up->lengthen(delay_);
  connection_->down->lengthen(delay_);
}

void simulated_processes::connected::give_up() {
  const fibers::group_scope in_group{group_};
  above_.later(0ns, [self = shared_from_this(), number = connection_->number] {
    if (self->has_ended() || !self->connection_ || self->connection_->number != number) return;
    self->above_.log_.note("group " + std::to_string(self->group_) + " gives up its connection, which is too slow");
    // As connection does, before this side ends it: see process_session::lost().
    self->broken({.code = errc::communicator_failed, .text = "the controller does not read"});
    if (!self->connection_) return;
    self->connection_->up->discard();
    self->disconnect(false);
  });
}

void simulated_processes::connected::give_up_by_controller(std::uint64_t number) {
  const fibers::group_scope of_nobody{0};
  above_.later(0ns, [self = shared_from_this(), number] {
    if (!self->connection_ || self->connection_->number != number) return;
    self->above_.log_.note("the controller gives up connection " + std::to_string(number) + ", which is too slow");
    self->above_.controllers_.call(self->controller(),
                                   [&](control_server& to) { to.lose(peer_id{number}, session_end::broken); });
    self->cut_off();
  });
}

void simulated_processes::connected::partition(nanoseconds span) {
  reachable_from_ = std::max(reachable_from_, virtual_now() + span);
  slow_down(span);
}

void simulated_processes::connected::connect() {
  is_searching_ = true;
  above_.later(chance_.within(3ms), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->has_ended()) return;
    self->disconnect(false);
    const simulated_controllers& controllers = self->above_.controllers_;
    const std::size_t address = self->attempts_++ % controllers.addresses();
    const auto controller = controllers.listening_at(address);
    if (controllers.addresses() > 1 && controller != 0 && controllers.is_stopped(address))
      return self->above_.later(longest_handshake, [weak] {
        const auto waiting = weak.lock();
        if (!waiting || waiting->has_ended()) return;
        waiting->is_searching_ = false;
        waiting->broken({.code = errc::communicator_failed, .text = "the controller does not answer"});
      });
    self->is_searching_ = false;
    if (controller == 0 || virtual_now() < self->reachable_from_)
      return self->broken({.code = errc::communicator_failed, .text = "no controller listens"});
    const std::uint64_t number = ++self->above_.last_connection_;
    const auto link = [&](std::uint64_t which, fibers::group of) {
      return std::make_unique<simulated_link>(mix(self->above_.of_.seed, which, number), of);
    };
    self->connection_ = connection{number, controller, link(16, 0), link(17, self->group_)};
    self->lengthen(self->delay_);
    self->above_.connections_[number] = self;
    ++self->connections_;
    self->send(self->introduce());
  });
}

void simulated_processes::connected::send(std::string bytes) {
  if (has_ended() || !connection_) return;
  const std::size_t size_bytes = bytes.size();
  const bool is_read = connection_->up->put(
      [above = &above_, from = sender{.place = place_or_none(), .process = group_, .sent = virtual_now()},
       to = connection_->controller, number = connection_->number,
       bytes = std::move(bytes)] { above->hear(from, to, number, bytes); },
      size_bytes);
  if (!is_read) give_up();
}

void simulated_processes::connected::carry(std::uint64_t through, std::string bytes) {
  if (has_ended() || !connection_ || connection_->number != through) return;
  const std::size_t size_bytes = bytes.size();
  const bool is_read = connection_->down->put(
      [weak = weak_from_this(), through, bytes = std::move(bytes)] {
        const auto self = weak.lock();
        if (!self || self->has_ended() || !self->connection_ || self->connection_->number != through) return;
        const fibers::no_wait_scope in_turn;
        self->receive(bytes);
      },
      size_bytes);
  if (!is_read) give_up_by_controller(through);
}

void simulated_processes::connected::disconnect(bool loses) {
  if (!connection_) return;
  connection gone = *std::exchange(connection_, std::nullopt);
  above_.connections_.erase(gone.number);
  gone.down->drop();
  const auto lose = [above = &above_, at = gone.controller, number = gone.number,
                     how = loses ? session_end::broken : session_end::closed] {
    above->controllers_.call(at, [&](control_server& to) { to.lose(peer_id{number}, how); });
  };
  if (loses) {
    gone.up->drop();
    // The controller notices it soon, or has noticed the silence before its transport does.
    above_.later(chance_.one_in(2) ? chance_.within(20ms) : longest_unnoticed, lose);
    return;
  }
  gone.up->put(lose); // delivered after all messages sent before
  gone.up->close();
  above_.closing_.push_back(std::move(gone.up));
}

void simulated_processes::connected::await_awake() const {
  if (!is_stopped_) return;
  const fibers::group_scope in_group{group_};
  fibers::current()->sleep(0ns);
}

/// One process with a rank, and its world.
class simulated_processes::process final : public connected {
public:
  process(simulated_processes& above, int place, int attempt)
    : process{above, place, attempt, group_of(place, attempt)} {}
  [[nodiscard]] static fibers::group group_of(int place, int attempt) noexcept {
    return simulation::group_of(process_kind::rank, static_cast<std::uint64_t>(place),
                                static_cast<std::uint64_t>(attempt));
  }

  void begin();
  void stop() {
    if (world_) world_->stop();
  }
  /// Ends the process as a signal does. If \p loses, messages in transit do not arrive.
  void kill(bool loses, const launch::exit_status& how = killed);

  /// Returns its world if it can be used, or null. Waits while the process is stopped.
  [[nodiscard]] simulated_world* enter() const;
  [[nodiscard]] simulated_world* world() const { return *is_dead_ ? nullptr : world_.get(); }
  [[nodiscard]] bool is_ready_in(epoch of) const;
  void change(const rank_change& asked, std::shared_ptr<value_promise<world_processes>> reply) {
    const fibers::group_scope in_group{group_};
    link_->change(asked, std::move(reply));
  }
  [[nodiscard]] bool is_over() const { return *is_dead_ || !world_ || world_->is_over(); }
  /// Returns whether its manager has seen that it ended. A process whose world is over first waits until the controller
  /// has confirmed its farewell.
  [[nodiscard]] bool is_gone() const noexcept { return *is_dead_ || has_returned_; }
  [[nodiscard]] int place() const noexcept { return place_; }
  [[nodiscard]] process_identity who() const {
    return {.name = std::to_string(place_),
            .host = "host" + std::to_string(host()),
            .pid = static_cast<std::int64_t>(group_)};
  }
  [[nodiscard]] std::string name() const { return "process " + std::to_string(group_); }
  [[nodiscard]] int host() const noexcept { return host_of(above_.of_, place_); }
  /// Returns the time at which it has introduced itself to the present controller; time_point::max() if it has not.
  [[nodiscard]] time_point joined_at() const noexcept { return joined_at_; }
  /// The memory that requests of the driver may name.
  [[nodiscard]] exported_memory& exported() const noexcept { return *exported_; }
  /// Returns a flag that is true once the process has been killed.
  [[nodiscard]] std::shared_ptr<const bool> is_dead() const noexcept { return is_dead_; }

private:
  process(simulated_processes& above, int place, int attempt, fibers::group group)
    : connected{above, group, prng{mix(above.of_.seed, 15, group)}, host_of(above.of_, place)},
      place_{place},
      attempt_{attempt} {
    lengthen(above.delays_[static_cast<std::size_t>(place)]);
  }

  [[nodiscard]] std::shared_ptr<process> shared() { return std::static_pointer_cast<process>(shared_from_this()); }
  [[nodiscard]] bool has_ended() const override { return *is_dead_; }
  [[nodiscard]] int place_or_none() const override { return place_; }
  [[nodiscard]] std::string introduce() override {
    joined_at_ = virtual_now();
    return link_->introduction();
  }
  void receive(const std::string& bytes) override { link_->receive(bytes); }
  void broken(const error& why) override {
    joined_at_ = time_point::max();
    link_->disconnected(why);
  }

  [[nodiscard]] process_services services();
  void live();
  void hear(controller_directive what) {
    if (const auto* const directive = std::get_if<formation_directive>(&what.what)) {
      prepared_ = directive->of; // another controller may begin below what the former one has prepared
      above_.note_epoch(group_, directive->of, directive->id);
      above_.changes_.directed(group_, directive->of);
      meetings_->note_node(directive->id, directive->is_on_one_node);
      if (directive->is_on_one_node && above_.of_.processes->one_shot_bytes > 0)
        above_.log_.note(name() + " forms with one-shot kernels");
    }
    if (const auto* const ahead = std::get_if<prepare_directive>(&what.what)) {
      prepared_ = ahead->of;
      above_.note_epoch(group_, ahead->of, ahead->id);
      above_.reach(change_step::preparing);
    }
    if (simulated_world* const mine = world()) mine->tell(std::move(what));
  }
  /// Ends the process soon, because the controller has removed it from the world.
  void removed();
  /// Ends it after \p tenths tenths of removal_grace. Waits for each tenth separately, so that a jump of the clock
  /// skips only one of them.
  void end_after(int tenths);

  const int place_;
  const int attempt_;
  const std::shared_ptr<exported_memory> exported_ = std::make_shared<exported_memory>(group_);
  std::shared_ptr<bool> is_dead_ = std::make_shared<bool>(false);
  epoch prepared_{}; ///< The latest that was prepared or formed.
  bool has_returned_ = false;
  bool is_removed_ = false; ///< It no longer belongs to the world, and ends soon.
  time_point joined_at_ = time_point::max();
  std::unique_ptr<simulated_machine> machine_;
  std::shared_ptr<process_session> link_;
  const std::shared_ptr<one_shot_meeting_place> meetings_ = std::make_shared<node_meetings>(above_.meetings_);
  std::unique_ptr<simulated_world> world_;
};

process_services simulated_processes::process::services() {
  const std::weak_ptr weak = shared();
  return {.deliver =
              [weak](controller_directive what) {
                if (const auto self = weak.lock()) self->hear(std::move(what));
              },
          .make_id =
              [weak, real = make_mock_backend()](const std::function<void(const error&, const unique_id&)>& take) {
                const auto self = weak.lock();
                if (!self || !self->machine_) return;
                self->machine_->helpers->run(
                    "the creation of a unique id", self->above_.of_.limits.form,
                    [weak, real, take, span = self->chance_.within(2ms)] {
                      fibers::current()->sleep(span);
                      if (const auto still = weak.lock(); still && still->world() != nullptr)
                        take({}, real->make_unique_id());
                    },
                    [take](const error& why) {
                      if (why) take(why, {});
                    });
              },
          .abandoned =
              [weak](const error&) {
                if (const auto self = weak.lock()) self->removed();
              },
          .knock = [above = &above_, host = host()] { return above->knock(host); },
          .without_rings =
              [weak](const error& why) {
                if (const auto self = weak.lock()) self->above_.log_.note(self->name() + " has no rings: " + why.text);
              },
          .order_opened =
              [weak](epoch of, bool through_rings) {
                if (const auto self = weak.lock()) self->above_.check_service(*self, of, through_rings);
              },
          .fused = {.mode = above_.of_.fused},
          .ring_wait = ring_wait};
}

void simulated_processes::process::begin() {
  const fibers::group_scope in_group{group_};
  simulated_terms terms = terms_of(above_.of_);
  terms.ranks = 1;
  terms.seed = mix(above_.of_.seed, 14, group_);
  machine_ = std::make_unique<simulated_machine>(terms, above_.on_.api,
                                                 std::vector{above_.on_.devices[static_cast<std::size_t>(place_)]});
  session_services session = session_with(machine_->services.time);
  session.patience = 1s;
  session.ends_with_controller = above_.of_.processes->orphans == orphan_policy::leave;
  const bool is_spare = place_ >= world_size_of(above_.of_);
  link_ =
      std::make_shared<process_session>(std::move(session),
                                        join_request{.who = who(),
                                                     .facts = {{std::string{fact_of_planned_changes},
                                                                above_.of_.processes->plans_changes ? "yes" : "no"}},
                                                     .place = is_spare ? std::nullopt : std::optional{place_},
                                                     .spare = is_spare,
                                                     .attempt = above_.of_.processes->counts_attempts ? attempt_ : 0},
                                        services());
  world_plan plan = make_plan(terms, *machine_, std::make_shared<world_status>(), above_.faults_);
  plan.world_size = world_size_of(above_.of_);
  plan.locals.front().self = rank{place_ % plan.world_size};
  // A communicator knows its epoch and its process.
  plan.backend = make_faulty_backend(
      with_one_shot_kernels(make_mock_backend(), {.enabled = above_.of_.processes->one_shot_bytes > 0,
                                                  .part_bytes = above_.of_.processes->one_shot_bytes,
                                                  .meetings = meetings_}),
      [faults = above_.faults_, of = std::weak_ptr{shared()}]() -> std::shared_ptr<fault_injector> {
        const auto mine = of.lock();
        simulated_world* const world = mine ? mine->world() : nullptr;
        if (world == nullptr) throw exception{errc::abandoned, "the process has been killed"};
        return std::make_shared<process_faults>(faults, std::max(world->current_epoch(), mine->prepared_),
                                                mine->is_dead());
      });
  plan.to_controller = link_;
  plan.services.lease = link_->lease();
  plan.exported = exported_;
  world_ = std::make_unique<simulated_world>(std::move(plan), terms.seed, above_.log_, name());
  world_->listen([this](const world_event& event) {
    if (*is_dead_) return;
    if (event.phase == world_phase::ready) above_.note_ready(event.epoch, event.world_size);
    if (above_.heard_) above_.heard_(event, group_);
  });
  above_.log_.note(name() + " starts");
  above_.ledger_.began(rank{place_}, group_);
  worker{[self = shared()] { self->live(); }}.detach();
}

void simulated_processes::process::live() {
  while (!is_over()) {
    if (link_->tick() && !is_searching_) connect(); // it joins threads that have read rings
    fibers::current()->sleep(look_every);
  }
  above_.note_end(group_);
  if (!*is_dead_) {
    const bool has_failed = world_->latest().phase == world_phase::failed;
    link_->await_farewell(farewell);
    disconnect(false);
    has_returned_ = true;
    above_.has_returned(*this, {.code = has_failed ? 1 : 0});
  } else if (!world_->is_over()) {
    world_->kill({.code = errc::abandoned, .text = "the process has been killed"});
  }
  link_->close_rings();
  above_.log_.note(name() + " has ended");
  world_ = nullptr;
  machine_ = nullptr;
  --above_.unended_;
}

void simulated_processes::process::kill(bool loses, const launch::exit_status& how) {
  if (is_over()) return;
  *is_dead_ = true;
  above_.log_.note(name() + " is killed");
  fibers::current()->resume(group_);
  above_.note_end(group_);
  above_.ledger_.died(rank{place_});
  disconnect(loses);
  above_.ended(*this, how);
  link_->close_rings();
}

void simulated_processes::process::removed() {
  if (std::exchange(is_removed_, true)) return;
  above_.note_end(group_); // it can tell nobody any more
  end_after(10);
}

void simulated_processes::process::end_after(int tenths) {
  above_.later(removal_grace / 10, [self = shared(), tenths] {
    if (*self->is_dead_) return;
    if (tenths > 1) return self->end_after(tenths - 1);
    self->above_.ledger_.removed(rank{self->place_}, removal_grace);
    self->kill(false, {.code = 1});
  });
}

simulated_world* simulated_processes::process::enter() const {
  await_awake();
  return world();
}

bool simulated_processes::process::is_ready_in(epoch of) const {
  if (*is_dead_ || !world_) return false;
  const world_event now = world_->latest();
  return now.phase == world_phase::ready && now.epoch == of;
}

/// The process without a rank that makes the requests to the world.
class simulated_processes::driver final : public connected {
public:
  driver(simulated_processes& above, int number)
    : driver{above, number, group_of(process_kind::driver, static_cast<std::uint64_t>(number))} {}

  void begin() {
    const fibers::group_scope in_group{group_};
    link_ = std::make_shared<driver_session>(
        session_with(std::make_shared<monotonic_clock>()),
        process_identity{.name = "driver", .host = "host0", .pid = static_cast<std::int64_t>(group_)}, "",
        driver_services{.changed = [](const world_event&) {},
                        .warned = [](const error&) {},
                        .default_deadline = 1s,
                        .holder = group_});
    above_.log_.note(name() + " starts");
    worker{[self = shared()] { self->live(); }}.detach();
  }
  /// Asks all ranks. Waits while the process is stopped.
  void ask(world_request asked, reply_promise reply) {
    await_awake();
    link_->ask(std::move(asked), std::move(reply));
  }
  void change(const rank_change& asked, std::shared_ptr<value_promise<world_processes>> reply) {
    const fibers::group_scope in_group{group_};
    link_->change(asked, std::move(reply));
  }
  /// Ends it. Pending requests are answered with an unknown outcome. If \p loses, messages in transit do not arrive.
  void end(bool loses) {
    if (is_over_) return;
    above_.log_.note(name() + " ends");
    fibers::current()->resume(group_);
    if (loses) disconnect(true);
    link_->close({.code = errc::abandoned, .text = "the driver has ended"});
    is_over_ = true;
    disconnect(false);
  }
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }
  [[nodiscard]] std::string name() const { return "driver " + std::to_string(number_); }

private:
  driver(simulated_processes& above, int number, fibers::group group)
    : connected{above, group, prng{mix(above.of_.seed, 20, group)}, 0}, number_{number} {}

  [[nodiscard]] std::shared_ptr<driver> shared() { return std::static_pointer_cast<driver>(shared_from_this()); }
  [[nodiscard]] bool has_ended() const override { return is_over_; }
  [[nodiscard]] int place_or_none() const override { return -1; }
  [[nodiscard]] std::string introduce() override { return link_->introduction(); }
  void receive(const std::string& bytes) override { link_->receive(bytes); }
  void broken(const error& why) override { link_->disconnected(why); }

  void live() {
    while (!is_over_) {
      {
        const fibers::no_wait_scope in_turn;
        if (link_->tick() && !is_searching_) connect();
      }
      fibers::current()->sleep(look_every);
    }
    above_.log_.note(name() + " has ended");
    --above_.unended_;
  }

  const int number_;
  bool is_over_ = false;
  std::shared_ptr<driver_session> link_;
};

/// The order service of one host, composed as in troupe::order_host. Its gate is a pair of sockets for each process
/// that knocks. The rings are real: the end of a process is noticed only through its connection to the controller,
/// because all simulated processes are the same real one.
class simulated_processes::host_service final : public connected {
public:
  host_service(simulated_processes& above, int host, int attempt)
    : host_service{above, host,
                   group_of(process_kind::order_service, static_cast<std::uint64_t>(host),
                            static_cast<std::uint64_t>(attempt))} {}

  void begin() {
    const fibers::group_scope in_group{group_};
    const std::weak_ptr weak = shared();
    link_ = std::make_shared<host_session>(
        session_with(std::make_shared<monotonic_clock>()),
        process_identity{
            .name = name(), .host = "host" + std::to_string(host_), .pid = static_cast<std::int64_t>(group_)},
        "",
        host_services{.claim =
                          [weak](const ring_session& nonce) {
                            const auto self = weak.lock();
                            return self ? self->claim(nonce) : std::nullopt;
                          },
                      .serving =
                          [weak](epoch of, std::size_t ranks) {
                            const auto self = weak.lock();
                            if (!self) return;
                            if (self->above_.log_.is_kept())
                              self->above_.log_.note(self->name() + " serves " + std::to_string(ranks) +
                                                     " ranks in epoch " + to_string(of));
                            if (ranks > 0) self->above_.ordering_in(of).of_hosts[self->host_] = self->group_;
                          },
                      .warned =
                          [weak](const error& why) {
                            if (const auto self = weak.lock())
                              self->above_.log_.note(self->name() + " warns: " + to_string(why));
                          }},
        service_);
    above_.log_.note(name() + " starts");
    ordering_ = worker{[of = service_] { of->run(); }};
    worker{[self = shared()] { self->live(); }}.detach();
  }
  /// Connects a process to its gate.
  [[nodiscard]] std::optional<gate_connection> knock() {
    std::array<int, 2> ends{};
    if (is_over_ || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
      return std::nullopt;
    const ring_session nonce{{chance_.next(), chance_.next()}};
    at_gate_.add(file_descriptor{ends[0]}, virtual_now());
    at_gate_.look([&](const file_descriptor&, std::optional<ring_session>& said) {
      said = nonce;
      return true;
    });
    return gate_connection{file_descriptor{ends[1]}, nonce};
  }
  /// Ends it as SIGKILL does. If \p loses, messages in transit do not arrive.
  void kill(bool loses) {
    if (std::exchange(is_over_, true)) return;
    above_.log_.note(name() + " is killed");
    fibers::current()->resume(group_);
    disconnect(loses);
    service_->stop();
  }
  /// Returns the time at which it has introduced itself to the present controller; time_point::max() if it has not.
  [[nodiscard]] time_point joined_at() const noexcept { return is_over_ ? time_point::max() : joined_at_; }
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }
  [[nodiscard]] std::string name() const { return "service " + std::to_string(group_); }

private:
  host_service(simulated_processes& above, int host, fibers::group group)
    : connected{above, group, prng{mix(above.of_.seed, 33, group)}, host}, host_{host} {}

  [[nodiscard]] std::shared_ptr<host_service> shared() {
    return std::static_pointer_cast<host_service>(shared_from_this());
  }
  [[nodiscard]] bool has_ended() const override { return is_over_; }
  [[nodiscard]] int place_or_none() const override { return -1; }
  [[nodiscard]] std::string introduce() override {
    joined_at_ = virtual_now();
    return link_->introduction();
  }
  void receive(const std::string& bytes) override { link_->receive(bytes); }
  void broken(const error& why) override {
    joined_at_ = time_point::max();
    link_->disconnected(why);
  }
  [[nodiscard]] std::optional<gate_connection> claim(const ring_session& nonce) {
    auto found = at_gate_.claim(nonce);
    if (!found) return std::nullopt;
    return gate_connection{*std::move(found), nonce};
  }

  void live() {
    while (!is_over_ && !link_->over()) {
      at_gate_.expire(virtual_now());
      if (link_->tick() && !is_searching_) connect();
      fibers::current()->sleep(look_every);
    }
    kill(false);
    ordering_.join();
    link_ = nullptr; // closes its connections to processes
    service_ = nullptr;
    above_.log_.note(name() + " has ended");
    --above_.unended_;
  }

  const int host_;
  bool is_over_ = false;
  time_point joined_at_ = time_point::max();
  unclaimed_connections<file_descriptor> at_gate_;
  std::shared_ptr<order_service> service_ = std::make_shared<order_service>(order_service_settings{.wait = ring_wait});
  std::shared_ptr<host_session> link_;
  worker ordering_;
};

/// The launcher of the processes. It decides as troupe launch does, by launch::job_course.
class simulated_processes::launcher final : private launch::job_actions, public std::enable_shared_from_this<launcher> {
public:
  explicit launcher(simulated_processes& above)
    : above_{above},
      plan_{plan_of(above.of_)},
      course_{plan_, terms_of(above.of_), grace, *this},
      events_{mix(above.of_.seed, 40), 0} {
    course_.start_all();
  }

  void exited(int place, pid_t pid, launch::exit_status how) {
    post([place, pid, how](launch::job_course& to) { to.exited(static_cast<launch::place_index>(place), pid, how); });
  }
  void hear(const control_event& event) {
    post([event](launch::job_course& to) { to.hear(event); });
  }
  void kill_lost(const process_identity& who) {
    post([who](launch::job_course& to) { to.kill_lost(who); });
  }
  void joined(const std::string& name) {
    post([name](launch::job_course& to) { to.joined(name); });
  }
  void want(int place) {
    post([place](launch::job_course& to) { to.want(static_cast<launch::place_index>(place)); });
  }
  void stop() {
    post([](launch::job_course& to) { to.take_signal(SIGTERM); });
  }
  /// Returns whether it ends the job.
  [[nodiscard]] bool is_ending() const noexcept { return is_ending_; }

private:
  static constexpr nanoseconds grace = 2s;

  static launch::launch_plan plan_of(const scenario& of) {
    launch::launch_plan plan;
    plan.request.processes = static_cast<std::size_t>(of.ranks);
    for (std::size_t place = 0; place < plan.request.processes; ++place)
      plan.places.push_back({.name = std::to_string(place), .number = place});
    return plan;
  }
  /// Lost processes are replaced a few times more often than the world may rebuild, because one rebuild may replace
  /// several.
  static launch::respawn_terms terms_of(const scenario& of) {
    return {.budget = {.count = of.recovery.rebuilds + 4, .window = 10s, .first_delay = 2ms, .longest_delay = 20ms},
            .hasty = 5ms};
  }
  /// Handles events one after the other, as the thread of a process_supervisor does.
  void post(std::function<void(launch::job_course&)> event) {
    events_.put([weak = weak_from_this(), event = std::move(event)] {
      if (const auto self = weak.lock(); self && !self->above_.is_over_) event(self->course_);
    });
  }

  [[nodiscard]] time_point now() const override { return virtual_now(); }
  [[nodiscard]] launch::started_process start(launch::place_index place, std::size_t attempt) override {
    const int which = static_cast<int>(place);
    const auto pid = above_.next_of(which);
    attempt == 0 ? above_.start(which) : above_.start_later(which);
    return {.number = launch::process_number{static_cast<std::uint32_t>(pid)}, .pid = static_cast<pid_t>(pid)};
  }
  void send(launch::process_number which, int signal) override {
    is_ending_ = is_ending_ || signal == SIGTERM;
    above_.signal(which.value(), signal);
  }
  void after(nanoseconds delay, std::function<void()> action) override {
    const fibers::group_scope of_nobody{0};
    worker{[weak = weak_from_this(), delay, action = std::move(action)] {
      fibers::current()->sleep(delay);
      if (const auto self = weak.lock(); self && !self->above_.is_over_) action();
    }}.detach();
  }
  void say(const std::string& line) override { above_.log_.note("launcher: " + line); }
  void report_end(launch::place_index place, pid_t pid, const launch::exit_status& status) override {
    const fibers::group_scope of_nobody{0};
    above_.later(above_.chance_.within(5ms),
                 [above = &above_, name = plan_.places[place].name, pid, how = to_string(status)] {
                   above->controllers_.call_present([&](control_server& to) { to.process_ended(name, pid, how); });
                 });
  }
  void stop_world() override {
    above_.controllers_.call_present([](control_server& to) { to.stop(); });
  }
  void finish(int status) override {
    is_ending_ = true;
    above_.log_.note("the job ends with status " + std::to_string(status));
  }

  simulated_processes& above_;
  const launch::launch_plan plan_;
  launch::job_course course_;
  simulated_link events_;
  bool is_ending_ = false;
};

simulated_processes::simulated_processes(const scenario& of, simulated_machine& on,
                                         std::shared_ptr<fault_injector> faults, simulation_ledger& ledger, trace& log)
  : of_{of},
    on_{on},
    faults_{std::move(faults)},
    meetings_{std::make_shared<one_shot_local_place>()},
    ledger_{ledger},
    changes_{of, ledger},
    log_{log},
    chance_{mix(of.seed, 18)},
    driver_chance_{mix(of.seed, 21)},
    controllers_{of, log, make_callbacks()},
    places_(static_cast<std::size_t>(of.ranks)),
    starts_(static_cast<std::size_t>(of.ranks)),
    is_starting_(static_cast<std::size_t>(of.ranks)),
    delays_(static_cast<std::size_t>(of.ranks)) {
  make_clocks();
  for (std::size_t address = 0; address < controllers_.addresses(); ++address)
    ticks_.emplace_back([this, address] {
      while (!is_over_) {
        controllers_.call_at(address, [](control_server& to) {
          const fibers::no_wait_scope in_turn;
          to.tick();
        });
        fibers::current()->sleep(control_server::tick_interval);
      }
    });
  const int hosts = of.processes->has_services ? host_count(of) : 0;
  services_.resize(static_cast<std::size_t>(hosts));
  service_starts_.resize(services_.size());
  for (int host = 0; host < hosts; ++host) start_service(host);
  const bool is_launched = of.processes->orphans == orphan_policy::leave && !of.processes->replaces_wanted;
  if (is_launched) launcher_ = std::make_shared<launcher>(*this);
  for (int place = 0; place < of.ranks && !is_launched; ++place) start(place);
  start_driver();
  constexpr int number_of_idle = 1000;
  idle_ = std::make_shared<driver>(*this, number_of_idle);
  ++unended_;
  idle_->begin();
}

simulated_processes::~simulated_processes() {
  is_over_ = true;
  launcher_ = nullptr;
  for (const auto& one : places_) one->kill(true);
  for (const auto& one : services_) one->kill(true);
  driver_->end(true);
  idle_->end(true);
  for (worker& one : ticks_) one.join();
  fibers::current()->run([this] { return unended_ == 0 && controllers_.is_idle(); });
  // What slow readers have not read yet would reach the controllers when they are gone.
  for (const auto& one : closing_) one->drop();
  for (const auto& [number, weak] : connections_)
    if (const auto one = weak.lock()) one->drop_links();
}

simulated_controllers::callbacks simulated_processes::make_callbacks() {
  return {.make =
              [this](simulated_controllers::number made, controller_hooks of_store) {
                return std::make_unique<control_server>(controller_terms_of(of_), order_service_settings{}, nullptr,
                                                        make_hooks(made, std::move(of_store)), sources_of(of_, made));
              },
          .begun =
              [this](control_server& made) {
                if (is_stopping_ && !of_.processes->stops_by_itself) made.stop();
              },
          .gone =
              [this](simulated_controllers::number gone, bool is_killed) {
                std::vector<std::shared_ptr<connected>> ends;
                for (const auto& [number, one] : connections_)
                  if (const auto end = one.lock(); end && end->controller() == gone) ends.push_back(end);
                for (const auto& end : ends) is_killed ? end->cut() : end->cut_off();
              },
          .wrong = [this](const std::string& what) { ledger_.wrong(what); },
          .is_over = [this] { return is_over_; },
          .later = [this](nanoseconds delay, std::function<void()> what) { later(delay, std::move(what)); }};
}

controller_hooks simulated_processes::make_hooks(simulated_controllers::number of, controller_hooks of_store) {
  return {
      .send =
          [this, of](peer_id to, std::string bytes) {
            const auto number = static_cast<std::uint64_t>(to);
            const auto one = connections_.find(number);
            const auto receiver = one != connections_.end() ? one->second.lock() : nullptr;
            if (of_.processes->has_standby) note_directive(of, receiver ? receiver->group() : fibers::group{}, bytes);
            if (receiver) receiver->carry(number, std::move(bytes));
          },
      .heard =
          [this, of](const control_event& event) {
            const controller_state& state = controllers_.find(of)->state();
            if (log_.is_kept()) log_.note("controller: " + describe(event));
            if (event.lost) ledger_.declared_lost(static_cast<std::uint64_t>(event.lost->pid), event.epoch);
            if (launcher_) launcher_->hear(event);
            note_change(event, state);
            if (event.reason.text.starts_with("the order service of the epoch has not joined") &&
                std::ranges::none_of(of_.faults, may_keep_a_service_away, &planned_fault::kind))
              ledger_.wrong("an epoch whose order goes on without a controller has ended with it (FLT-1): " +
                            to_string(event.reason));
            if (event.phase != control_phase::rebuilding) wanted_.clear();
            if (event.phase == control_phase::failed || event.phase == control_phase::forming)
              has_failed_ = event.phase == control_phase::failed && !of_.processes->has_standby;
            if (of_.processes->has_standby && event.epoch < forming_) return; // it is not elected any more
            if (event.phase == control_phase::forming && (event.epoch != forming_ || formed_by_ != of))
              changes_.begins(of, event.epoch, state.is_switching(), state.processes());
            // Without a store, a number may stand for another epoch under another controller.
            if (event.phase == control_phase::forming && (event.epoch != forming_ || formed_by_ != of)) {
              if (state.is_switching()) reach(change_step::switching);
              std::vector<rank> origins;
              for (const world_process& one : state.processes()) {
                if (!one.self) continue;
                // A process that stood by may have another place than the one for which it was started.
                const auto started =
                    std::ranges::find_if(places_, [&](const auto& each) { return each && each->who().pid == one.pid; });
                origins.emplace_back(started == places_.end() ? *one.place
                                                              : static_cast<int>(started - places_.begin()));
              }
              ledger_.began(event.epoch, std::move(origins), state.is_switching());
              forming_ = event.epoch;
              forming_since_ = virtual_now();
              if (const int before = std::exchange(ranks_, event.ranks); before != 0 && before != ranks_)
                size_changes_.push_back(event.epoch);
            }
            if (event.phase == control_phase::forming && std::exchange(formed_by_, of) != of) {
              std::set<std::uint64_t> away;
              for (const auto& each : places_)
                if (each && each->is_away_for(state.terms().suspicion + 2 * state.terms().heartbeat))
                  away.insert(each->group());
              ledger_.forms_again(event.epoch, away);
            }
            const bool misses_one = event.phase == control_phase::failed &&
                                    event.reason.code == errc::deadline_exceeded &&
                                    event.reason.text.find("not joined in time") != std::string::npos;
            if (misses_one) changes_.misses(state.processes());
            // A process that is wanted starts soon.
            const bool is_given_up = launcher_ && launcher_->is_ending();
            if (misses_one && !is_given_up && std::ranges::none_of(of_.faults, may_keep_away, &planned_fault::kind))
              ledger_.wrong("the world has ended because a process has not joined (FLT-1): " + to_string(event.reason));
          },
      .refused =
          [](const error& why) {
            if (why.code == errc::internal) throw exception{why}; // the simulation does not forge messages
          },
      .kill =
          [this](const process_identity& who) {
            if (launcher_) return launcher_->kill_lost(who);
            if (of_.processes->orphans != orphan_policy::leave) return; // nobody kills it
            for (const auto& one : places_)
              if (one->who().pid == who.pid) later(chance_.within(5ms), [one] { one->kill(false); });
          },
      .joined =
          [this](const process_identity& who) {
            if (launcher_) launcher_->joined(who.name);
          },
      .wanted =
          [this](int place) {
            const control_server* const now =
                controllers_.present(); // null: it has not noticed that it is none any more
            if (in_vain_.contains(place) && (!now || now->state().event().phase == control_phase::serving)) return;
            launcher_ ? launcher_->want(place) : wanted(place);
          },
      .ended = std::move(of_store.ended),
      .batch_added = [this](rank, epoch in) { ledger_.counted(rank{speaker_}, in, said_); },
      .order_closed =
          [this](epoch closed) {
            ordering_in(closed);
            // Even a process without new requests has reported its successes, unless a fault delayed its messages.
            // An order service passes them on later.
            if (!is_undisturbed() || !services_.empty()) return;
            for (int place = 0; place < of_.ranks; ++place)
              ledger_.counted(rank{place}, closed, virtual_now() - time_to_tell_successes);
          },
      .decide = std::move(of_store.decide),
      .claimed_until = std::move(of_store.claimed_until)};
}

void simulated_processes::hear(const sender& from, simulated_controllers::number at, std::uint64_t through,
                               std::string_view bytes) {
  controllers_.call(at, [&](control_server& to) {
    const fibers::no_wait_scope in_turn;
    if (from.place >= 0) { // a driver's batches report no rank's successes
      speaker_ = from.place;
      said_ = from.sent;
    }
    if (of_.processes->plans_changes || of_.processes->has_standby) note_message(from, bytes);
    to.hear(peer_id{through}, bytes);
  });
}

void simulated_processes::make_clocks() {
  constexpr nanoseconds longest_up = 400h;
  const auto found = std::ranges::find(of_.faults, fault_kind::drift, &planned_fault::kind);
  prng chance{mix(of_.seed, 39)};
  const std::size_t hosts = static_cast<std::size_t>(host_count(of_));
  for (std::size_t i = 0; i < hosts + simulated_controllers::clock_count(of_); ++i) {
    if (found == of_.faults.end()) {
      clocks_.push_back(std::make_shared<machine_clock>(0, 0ns, 0ns));
      continue;
    }
    const auto most = static_cast<std::uint64_t>(found->drift_ppm);
    const auto drift =
        static_cast<std::int64_t>(chance.one_in(2) ? 2 * most * chance.below(2) : chance.below(2 * most + 1));
    const nanoseconds up = chance.within(longest_up);
    clocks_.push_back(std::make_shared<machine_clock>(drift - found->drift_ppm, up, chance.within(up)));
  }
  controllers_.begin({clocks_.begin() + static_cast<std::ptrdiff_t>(hosts), clocks_.end()});
}

void simulated_processes::lose_controller() {
  const bool has_standby = of_.processes->has_standby;
  if (is_stopping_ || (!has_standby && controllers_.present() == nullptr)) return;
  const auto draw_pause = [this] { return 1ms + chance_.within(most_without_controller); };
  if (!controllers_.kill(has_standby ? draw_pause() : 0ns)) return;
  launcher_ = nullptr;
  if (has_standby) return;
  // With this policy, processes do not wait for another controller: the world ends.
  if (of_.processes->orphans == orphan_policy::leave)
    is_stopping_ = true;
  else
    later(draw_pause(), [this] {
      log_.note("another controller starts");
      controllers_.restart();
    });
}

void simulated_processes::later(nanoseconds delay, std::function<void()> what) {
  ++unended_;
  worker{[this, delay, what = std::move(what)] {
    fibers::current()->sleep(delay);
    if (!is_over_) what();
    --unended_;
  }}.detach();
}

void simulated_processes::start(int place) {
  const auto index = static_cast<std::size_t>(place);
  asked_.erase(place);
  places_[index] = std::make_shared<process>(*this, place, starts_[index]++);
  ++unended_;
  places_[index]->begin();
  if (is_stopping_) later(chance_.within(5ms), [one = places_[index]] { one->stop(); });
}

std::uint64_t simulated_processes::next_of(int place) const {
  return process::group_of(place, starts_[static_cast<std::size_t>(place)]);
}

void simulated_processes::signal(std::uint64_t pid, int number) {
  for (std::size_t place = 0; place < places_.size(); ++place) {
    const auto one = places_[place];
    if (one->group() == pid) {
      if (number == SIGKILL)
        later(chance_.within(5ms), [one] { one->kill(false); });
      else if (of_.processes->ends_at_sigterm)
        later(chance_.within(5ms), [one, number] { one->kill(false, {.signal = number}); });
      else
        one->stop();
    } else if (is_starting_[place] && next_of(static_cast<int>(place)) == pid) {
      later(5ms, [this, pid, number] { signal(pid, number); }); // it receives the signal when it has started
    }
  }
}

void simulated_processes::start_driver() {
  driver_ = std::make_shared<driver>(*this, ++drivers_);
  ++unended_;
  driver_->begin();
}

void simulated_processes::start_service(int host) {
  const auto index = static_cast<std::size_t>(host);
  services_[index] = std::make_shared<host_service>(*this, host, service_starts_[index]++);
  ++unended_;
  services_[index]->begin();
}

std::optional<gate_connection> simulated_processes::knock(int host) {
  return services_.empty() ? std::nullopt : services_[static_cast<std::size_t>(host)]->knock();
}

void simulated_processes::suspend_host(const planned_fault& of) {
  const int host = host_of(of_, of.where.value());
  const nanoseconds span = of.span;
  const auto index = static_cast<std::size_t>(host);
  if (of.stops_clock) clocks_[index]->suspend(virtual_now(), span);
  for (const auto& one : places_)
    if (one->host() == host && !one->is_over()) one->suspend(span);
  if (index < services_.size() && !services_[index]->is_over()) services_[index]->suspend(span);
}

void simulated_processes::strike_service(const planned_fault& one) {
  const int host = host_of(of_, one.where.value());
  const auto index = static_cast<std::size_t>(host);
  if (index >= services_.size() || is_stopping_ || services_[index]->is_over()) return;
  host_service& struck = *services_[index];
  if (one.kind == fault_kind::stopped_service) return struck.suspend(one.span);
  if (one.kind == fault_kind::cut_service) return struck.cut();
  struck.kill(chance_.one_in(3));
  later(1ms + chance_.within(most_without_service), [this, host, index] {
    if (!is_stopping_ && services_[index]->is_over()) start_service(host);
  });
}

simulated_processes::ordering_services& simulated_processes::ordering_in(epoch of) {
  ordering_services& all = ordered_by_[of];
  // Without a store, the number stands for another epoch then.
  const bool is_another = !of_.processes->has_standby && all.controller != controllers_.made();
  if (all.controller == 0 || is_another) all = {.controller = controllers_.made()};
  return all;
}

void simulated_processes::check_service(const process& one, epoch of, bool through_rings) {
  ordering_services& all = ordering_in(of);
  if (!through_rings) all.of_hosts.erase(one.host());
  if (through_rings || services_.empty() || of != forming_) return;
  if (std::ranges::any_of(of_.faults, may_delay_a_service, &planned_fault::kind)) return;
  // A process that joins names its gate; one that had joined before the service must find that first.
  const auto is_found = [&](time_point joined, time_point served) {
    return joined < forming_since_ && served < forming_since_ - (served > joined ? time_to_find_a_service : 20ms);
  };
  const host_service& service = *services_[static_cast<std::size_t>(one.host())];
  std::size_t found = 0, living = 0;
  for (int place = 0; place < of_.ranks; ++place) living += host_of(of_, place) == one.host() ? 1 : 0;
  for (const auto& each : places_)
    if (each && each->host() == one.host() && each->world() != nullptr && each->world()->current_epoch() == of &&
        is_found(each->joined_at(), service.joined_at()))
      ++found;
  if (found == living && found > 1)
    ledger_.wrong(one.name() + " is not served in epoch " + to_string(of) +
                  " by the order service of its host, which " + "it has had time to find");
}

void simulated_processes::start_later(int place) {
  const auto index = static_cast<std::size_t>(place);
  if (is_over_ || is_starting_[index]) return;
  is_starting_[index] = true;
  const fibers::group_scope of_nobody{0};
  later(1ms + chance_.within(30ms), [this, place, index] {
    is_starting_[index] = false;
    start(place);
  });
}

void simulated_processes::has_returned(const process& one, const launch::exit_status& how) {
  if (launcher_) return launcher_->exited(one.place(), static_cast<pid_t>(one.group()), how);
  if (asked_.erase(one.place()) > 0 && !is_stopping_) start_later(one.place());
}

void simulated_processes::note_end(std::uint64_t who) {
  ledger_.ended(who);
  changes_.ended(who);
}

void simulated_processes::note_change(const control_event& event, const controller_state& state) {
  if (event.reason.text.find("without a planned change") != std::string::npos) changes_.given_up(event.reason);
  if (event.phase == control_phase::serving) changes_.serves();
  if (std::exchange(phase_, event.phase) == event.phase || event.phase != control_phase::quiescing) return;
  if (state.is_switching()) {
    changes_.stops();
    return reach(change_step::stopping);
  }
  ledger_.quiesced();
  // The controller decides the order of an epoch that began before the ranks were connected to their order service.
  // That order cannot be held, so the epoch ends, and the service decides the next one.
  const bool moves = !services_.empty() && ordering_in(event.epoch).of_hosts.empty();
  changes_.quiesces(state.processes(), !moves);
}

void simulated_processes::note_epoch(std::uint64_t told, epoch of, const unique_id& id) {
  const control_server* const controller = controllers_.present();
  if (of_.processes->plans_changes && controller != nullptr)
    changes_.told(told, of, id, controller->state().processes());
}

void simulated_processes::note_message(const sender& from, std::string_view bytes) {
  error why;
  const auto frame = decode_process_frame(bytes, why);
  if (!frame) return;
  changes_.hears(from.process, frame->what);
  if (const auto* const beat = std::get_if<heartbeat>(&frame->what)) beats_[frame->session][beat->number] = from.sent;
}

void simulated_processes::note_directive(simulated_controllers::number by, fibers::group to, std::string_view bytes) {
  error why;
  const auto frame = decode_controller_frame(bytes, why);
  if (frame && std::holds_alternative<join_welcome>(frame->what)) changes_.welcomes(to);
  const auto* const granted = frame ? std::get_if<lease_grant>(&frame->what) : nullptr;
  if (granted == nullptr || granted->number == 0) return;
  if (beats_[frame->session][granted->number] > controllers_.replaced_at(by))
    ledger_.wrong("controller " + std::to_string(by) +
                  " grants a lease from after the election of another one (MEM-1)");
}

void simulated_processes::reach(change_step step) {
  const fibers::group_scope of_nobody{0};
  const auto is_due = [step](const planned_fault& one) { return one.during == step; };
  std::vector<planned_fault> due;
  std::ranges::copy_if(awaiting_, std::back_inserter(due), is_due);
  std::erase_if(awaiting_, is_due);
  for (planned_fault& one : due) {
    one.during.reset();
    later(one.at, [this, one] { strike(one); });
  }
}

void simulated_processes::ended(const process& one, const launch::exit_status& how) {
  const fibers::group_scope of_nobody{0};
  if (launcher_) return launcher_->exited(one.place(), static_cast<pid_t>(one.group()), how);
  if (of_.processes->orphans == orphan_policy::leave && chance_.one_in(2) && !is_over_)
    later(chance_.within(10ms), [this, who = one.who()] {
      controllers_.call_present([&](control_server& to) { to.process_ended(who.name, who.pid, "killed by signal 9"); });
    });
  const control_server* const controller = controllers_.present();
  const control_phase now = controller != nullptr ? controller->state().event().phase : control_phase::gathering;
  const bool is_ending =
      now == control_phase::failed || now == control_phase::finishing || now == control_phase::stopping;
  // While the world gathers for the first time, the controller asks for no process. It asks once for each place in a
  // rebuild, so a launcher also replaces a process that ends after that (launch::job_course::want()).
  const bool is_wanted_later =
      of_.processes->replaces_wanted && now != control_phase::gathering && !wanted_.contains(one.place());
  if (!is_stopping_ && !is_ending && !is_wanted_later) start_later(one.place());
}

void simulated_processes::wanted(int place) {
  wanted_.insert(place);
  if (places_[static_cast<std::size_t>(place)]->is_gone())
    start_later(place);
  else
    asked_.insert(place);
}

void simulated_processes::note_ready(epoch of, int world_size) {
  if (of < served_.epoch && of < forming_) return; // processes that were stopped say so late
  std::map<rank, rank> by_rank; // a process that stood by before it joined may have another rank than its place
  std::vector<std::weak_ptr<process>> members;
  for (const auto& one : places_) {
    if (!one || !one->is_ready_in(of)) continue;
    by_rank.emplace(one->world()->latest().local_ranks.front(), rank{one->place()});
    members.emplace_back(one);
  }
  if (by_rank.size() != static_cast<std::size_t>(world_size)) return;
  std::vector<rank> origins;
  for (const auto& [self, origin] : by_rank) origins.push_back(origin);
  served_ = {.phase = world_phase::ready,
             .epoch = of,
             .world_size = world_size,
             .local_ranks = {},
             .reason = {},
             .origins = std::move(origins)};
  all_[of] = std::move(members);
}

world_event simulated_processes::latest() const {
  world_event now = served_;
  if (served_.epoch == epoch{0}) return now;
  const bool is_ready = std::ranges::all_of(all_.at(served_.epoch), [this](const auto& one) {
    const auto member = one.lock();
    return member && member->is_ready_in(served_.epoch);
  });
  if (!is_ready) now.phase = world_phase::rebuilding;
  return now;
}

bool simulated_processes::has_client(rank self, epoch of) const {
  const auto found = all_.find(of);
  return found != all_.end() && !at(self).is_over() && std::ranges::any_of(found->second, [&](const auto& one) {
           return one.lock() == places_[static_cast<std::size_t>(self.value())];
         });
}

namespace {

error not_over_processes() {
  return {.code = errc::unsupported, .text = "a simulated world over processes does not support this request"};
}

} // namespace

void simulated_processes::ask_world(world_request asked, reply_promise reply) {
  // A client that names no epoch means the present one, which is another than the ledger expects.
  if (asked.epoch == epoch{}) asked.epoch = epoch{std::numeric_limits<std::uint64_t>::max()};
  const std::vector<rank>& origins = served_.origins;
  for (std::size_t r = 0; r < asked.parts.size(); ++r) {
    const rank origin = r < origins.size() ? origins[r] : rank{static_cast<int>(r)};
    exported_memory& exported = at(origin).exported();
    visit_operands(asked.parts[r], [&](const operand& one, std::string_view) {
      if (!one.memory) return;
      const remote_buffer handle = exported.add(rank{static_cast<int>(r)}, one.memory);
      const_cast<operand&>(one).memory = handle.as_buffer(); // NOLINT: the parts are not const
    });
  }
  const auto asker = driver_; // it may end, and another take its place, while it is stopped
  asker->ask(std::move(asked), std::move(reply));
}

void simulated_processes::register_memory(const registration_request&, std::shared_ptr<registration_promise> reply) {
  reply->deliver(not_over_processes());
}

void simulated_processes::capture(rank by, capture_request asked, std::shared_ptr<capture_answer> reply) {
  const auto one = places_[static_cast<std::size_t>(by.value())];
  simulated_world* const world = one->enter();
  if (world == nullptr) return;
  const fibers::group_scope in_group{one->group()};
  world->capture(rank{0}, std::move(asked), std::move(reply));
}

std::size_t simulated_processes::size_changes(epoch last) const {
  return static_cast<std::size_t>(std::ranges::count_if(size_changes_, [last](epoch one) { return one <= last; }));
}

std::size_t simulated_processes::order_moves(const std::vector<rank>& members, epoch last) const {
  const int host = host_of(of_, members.front().value());
  const bool is_of_host = std::ranges::all_of(members, [&](rank one) { return host_of(of_, one.value()) == host; });
  std::size_t moves = 0;
  std::optional<std::uint64_t> before;
  for (const auto& [of, all] : ordered_by_) {
    if (of > last) break;
    const auto found = is_of_host ? all.of_hosts.find(host) : all.of_hosts.end();
    const auto by = found != all.of_hosts.end() ? found->second : all.controller;
    if (before && *before != by) ++moves;
    before = by;
  }
  return moves;
}

std::uint64_t simulated_processes::process_of(rank self) const {
  return at(self).group();
}

void simulated_processes::ask_rank(rank self, std::size_t lane, rank_request asked, reply_promise reply) {
  const auto one = places_[static_cast<std::size_t>(self.value())];
  simulated_world* const world = one->enter();
  if (world == nullptr) return;
  const fibers::group_scope in_group{one->group()};
  world->ask_rank(rank{0}, lane, std::move(asked), std::move(reply));
}

void simulated_processes::ask_credit(rank by, const credit_request& asked, std::shared_ptr<credit_answer> reply) {
  const auto one = places_[static_cast<std::size_t>(by.value())];
  if (simulated_world* const world = one->enter()) world->ask_credit(rank{0}, asked, std::move(reply));
}

void simulated_processes::split(rank by, split_request asked, split_listener reply) {
  const auto one = places_[static_cast<std::size_t>(by.value())];
  simulated_world* const world = one->enter();
  if (world == nullptr) return;
  const fibers::group_scope in_group{one->group()};
  world->split_off(std::move(asked), std::make_shared<split_answer>([one, reply = std::move(reply)](
                                                                        std::variant<split_reply, error> result) {
                     if (const auto* const why = std::get_if<error>(&result)) return reply(nullptr, *why);
                     const sub_world& made = std::get<split_reply>(result).worlds.front();
                     const simulated_world* const parent = one->world();
                     reply(made.parts && parent != nullptr ? parent->find_sub_world(*made.parts->status) : nullptr, {});
                   }));
}

void simulated_processes::ask_sub_world(rank self, simulated_world& in, std::size_t lane, rank_request asked,
                                        reply_promise reply) {
  const auto one = places_[static_cast<std::size_t>(self.value())];
  const std::shared_ptr<simulated_world> kept = in.shared_from_this(); // it may end while its process is stopped
  if (one->enter() == nullptr) return;
  const fibers::group_scope in_group{one->group()};
  kept->ask_rank(rank{0}, lane, std::move(asked), std::move(reply));
}

void simulated_processes::stop_sub_world(rank self, simulated_world& in) {
  const auto one = places_[static_cast<std::size_t>(self.value())];
  const std::shared_ptr<simulated_world> kept = in.shared_from_this();
  if (one->enter() == nullptr) return;
  const fibers::group_scope in_group{one->group()};
  kept->stop();
}

bool simulated_processes::is_undisturbed() const {
  return std::ranges::none_of(of_.faults, delays_messages, &planned_fault::kind);
}

void simulated_processes::withdraw(rank self, std::size_t lane) {
  const auto one = places_[static_cast<std::size_t>(self.value())];
  if (simulated_world* const world = one->enter()) world->withdraw(rank{0}, lane);
}

void simulated_processes::end_rank(rank self) {
  if (simulated_world* const world = at(self).world()) world->end_rank(rank{0});
}

std::function<bool()> simulated_processes::change(const planned_departure& of, rank_change_kind kind,
                                                  std::function<void(const error& why)> answered) {
  const int place = of.where.value() % world_size_of(of_);
  const auto one = places_[static_cast<std::size_t>(of.where.value())];
  const bool by_itself = of.by == change_asker::process && kind == rank_change_kind::leave;
  const rank_change asked{.kind = kind,
                          .place = by_itself ? std::nullopt : std::optional{place},
                          .host = one->who().host,
                          .renumbers = of.renumbers};
  const control_server* const controller = controllers_.present();
  if (controller == nullptr || is_stopping_) return nullptr;
  if (of.by == change_asker::stranger) {
    if (kind == rank_change_kind::join) return nullptr;
    const auto session = chance_.next() | 1U;
    controllers_.call_present([&](control_server& to) {
      to.hear(peer_id{++last_connection_}, encode(process_frame{session, change_request{1, asked}}));
    });
    return nullptr;
  }
  const bool by_process = of.by == change_asker::process && !one->is_over();
  const bool by_driver = of.by == change_asker::driver && !driver_->is_over();
  if (of.by != change_asker::controller && !by_process && !by_driver) return nullptr;
  const auto is_vain = [&](const planned_departure& each) {
    return each.is_in_vain && each.where.value() % world_size_of(of_) == place;
  };
  const bool may_join = of_.processes->spares == 0 && std::ranges::none_of(of_.departures, is_vain);
  if (kind == rank_change_kind::join && of.is_in_vain) in_vain_.insert(place);
  log_.note("departure " + std::to_string(of.number) + ": " + std::string{to_string(kind)} + " of place " +
            std::to_string(place) + " or " + asked.host + " is asked for by " +
            (by_process  ? one->name()
             : by_driver ? driver_->name()
                         : "the controller"));
  const auto number = changes_.asked(asked, by_process ? one->group() : 0, controller->state().processes());
  const auto note = [this, lives = std::weak_ptr{lives_}, departure = of.number, number, place, may_join,
                     answered = std::move(answered)](const error& why, const world_processes& now) {
    if (lives.expired()) return; // the run has ended
    in_vain_.erase(place);
    log_.note("departure " + std::to_string(departure) + ": " + (why ? to_string(why) : "done"));
    changes_.answered(number, why, now, may_join);
    answered(why);
  };
  if (of.by == change_asker::controller) {
    auto held = std::make_shared<bool>(); // until it answers or is killed
    controllers_.call_present([&](control_server& to) {
      to.change(asked, std::nullopt, [this, note, held, by = &to](const error& why) {
        // If another controller has been elected since, its processes are not those for which this one answers.
        const control_server* const present = controllers_.present();
        note(why, present == by ? present->state().processes() : world_processes{});
      });
    });
    return [open = std::weak_ptr{held}] { return !open.expired(); };
  }
  auto reply = std::make_shared<value_promise<world_processes>>([note](std::variant<world_processes, error>&& result) {
    const auto* const why = std::get_if<error>(&result);
    why != nullptr ? note(*why, {}) : note({}, std::get<world_processes>(result));
  });
  if (by_process) {
    one->change(asked, std::move(reply));
    return [one] { return !one->is_over(); };
  }
  const auto asker = driver_;
  asker->change(asked, std::move(reply));
  return [asker] { return !asker->is_over(); };
}

void simulated_processes::strike(const planned_fault& one) {
  if (one.during) return awaiting_.push_back(one);
  if (driver_chance_.one_in(2) && !is_stopping_) {
    const auto struck = driver_;
    switch (one.kind) {
      case fault_kind::killed_process:
        struck->end(driver_chance_.one_in(2));
        later(driver_chance_.within(30ms), [this] {
          if (driver_->is_over() && !is_stopping_) start_driver();
        });
        break;
      case fault_kind::stopped_process: struck->suspend(one.span); break;
      case fault_kind::cut_link: struck->cut(); break;
      case fault_kind::slow_link: struck->slow_down(one.span); break;
      case fault_kind::slow_reader: struck->read_slowly(one.span); break;
      default: break;
    }
  }
  if (is_of_service(one.kind)) return strike_service(one);
  if (one.kind == fault_kind::lost_controller) return lose_controller();
  if (one.kind == fault_kind::stopped_controller) return controllers_.stop(one.span, one.stops_clock);
  if (is_of_store(one.kind)) return controllers_.cut_store(one.span, one.kind == fault_kind::unreachable_store);
  if (one.kind == fault_kind::suspended_host) return suspend_host(one);
  if (one.kind == fault_kind::boot_jump)
    return clocks_[static_cast<std::size_t>(host_of(of_, one.where.value()))]->jump(one.span);
  if (one.kind == fault_kind::long_link) {
    nanoseconds& delay = delays_[static_cast<std::size_t>(one.where.value())];
    delay = std::max(delay, one.span);
  }
  process& struck = at(one.where);
  if (struck.is_over()) return;
  switch (one.kind) {
    case fault_kind::killed_process: return struck.kill(chance_.one_in(3));
    case fault_kind::ended_actor: return end_rank(one.where);
    case fault_kind::stopped_process: return struck.suspend(one.span);
    case fault_kind::cut_link: return struck.cut();
    case fault_kind::slow_link: return struck.slow_down(one.span);
    case fault_kind::partition: return struck.partition(one.span);
    case fault_kind::slow_reader: return struck.read_slowly(one.span);
    case fault_kind::long_link: return struck.lengthen(one.span);
    default: break;
  }
}

void simulated_processes::stop() {
  control_server* const controller = controllers_.present();
  const bool had_time = !of_.requests.empty() || !of_.departures.empty(); // for drivers to connect
  if (had_time && is_undisturbed() && controllers_.made() == 1 && controller != nullptr && !is_stopping_)
    for (const auto& one : {driver_, idle_})
      if (one->connections() != 1)
        ledger_.wrong(one->name() + " has connected " + std::to_string(one->connections()) +
                      " times, although nothing has disturbed it");
  is_stopping_ = true;
  changes_.stopped();
  for (const auto& one : services_) later(300ms + driver_chance_.within(100ms), [one] { one->kill(false); });
  later(driver_chance_.within(200ms), [this] { idle_->end(false); });
  later(driver_chance_.within(200ms), [this] { driver_->end(driver_chance_.one_in(4)); });
  const bool by_controller = !of_.processes->stops_by_itself;
  if (by_controller && launcher_ && !of_.processes->ends_at_sigterm)
    launcher_->stop();
  else if (by_controller && controller != nullptr)
    controller->stop();
  for (const auto& one : places_) later(by_controller ? 50ms : chance_.within(10ms), [one] { one->stop(); });
}

bool simulated_processes::is_over() const {
  return unended_ == 0;
}

bool simulated_processes::has_ended() const {
  if (is_stopping_ || (launcher_ && launcher_->is_ending())) return true; // it ends with its controller, or its job
  if (controllers_.has_ended()) return true;
  // Nobody starts the processes of a world that has failed again, also if its controller is replaced afterwards.
  const bool is_any_left = std::ranges::any_of(places_, [](const auto& one) { return !one->is_over(); }) ||
                           std::ranges::find(is_starting_, true) != is_starting_.end();
  if (has_failed_ && !is_any_left) return true;
  const control_server* const controller = controllers_.present();
  if (controller == nullptr) return false; // another one starts
  const control_phase now = controller->state().event().phase;
  return now == control_phase::failed || now == control_phase::finishing || now == control_phase::stopping;
}

void simulated_processes::judge_memory() const {
  const control_server* const controller = controllers_.present();
  const std::size_t kept = controller != nullptr ? controller->state().records_of_others() : 0;
  if (kept > connections_.size())
    ledger_.wrong("the controller keeps " + std::to_string(kept) + " records of processes that are lost, and has " +
                  std::to_string(connections_.size()) + " connections");
}

std::optional<std::size_t> simulated_processes::held_up() const {
  for (const auto& one : places_)
    if (const simulated_world* const world = one->world())
      if (const auto waiting = world->held_up()) return waiting;
  return std::nullopt;
}

} // namespace troupe::simulation
