#include <troupe/processes/controller.hpp>

#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/process_mark.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/processes/control/control_server.hpp>
#include <troupe/processes/meeting/meeting_service.hpp>
#include <troupe/processes/store/leader_claim.hpp>
#include <troupe/processes/transport/transport.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/recording/flight_record.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

namespace {

controller_options checked(controller_options options) {
  const auto require = [](bool holds, const std::string& text) {
    if (!holds) throw exception{errc::invalid_argument, text};
  };
  const controller_terms& terms = options.terms;
  require(terms.world_size > 0, "a world needs at least one process");
  const int smallest = terms.recovery.smallest;
  require(smallest > 0 && smallest <= terms.world_size, "the minimum number of ranks is " + std::to_string(smallest) +
                                                            " and must be from 1 to " +
                                                            std::to_string(terms.world_size));
  require(terms.heartbeat > nanoseconds{0} && terms.suspicion >= 2 * terms.heartbeat,
          "controller_terms::suspicion is shorter than two heartbeats: make it longer");
  const nanoseconds lease = lease_length(terms);
  require(terms.lease >= nanoseconds{0} && lease > terms.heartbeat && lease + lease_bound(lease) <= terms.suspicion,
          "controller_terms::lease is " + std::to_string(lease.count()) +
              " ns, and must be longer than a heartbeat and, with one per cent more, at most as long as "
              "controller_terms::suspicion (" +
              std::to_string(terms.suspicion.count()) + " ns)");
  require(options.certificates || control_address{options.host, options.port}.is_loopback(),
          "the controller would listen at " + options.host +
              ", which other machines can reach, without certificates: create them with troupe certs and name them, or "
              "use 127.0.0.1");
  require(!options.store || options.port != 0,
          "a controller with a store needs a port of its own, which its processes know in advance: give it "
          "(controller_options::port, --port)");
  options.terms.has_successors = options.store != nullptr;
  return options;
}

wait_profile wait_of_order(const controller_options& options) {
  const auto processes = static_cast<std::size_t>(options.terms.world_size); // each has at least one thread that spins
  return options.wait.value_or(
      choose_wait(latency_profile::balanced, processes + 1, std::thread::hardware_concurrency()).wait);
}

/// Opens the gate. Returns null if that is not possible: the processes' requests then go through their control
/// connections.
std::shared_ptr<order_gate> open_gate(std::uint16_t port) {
  try {
    return std::make_shared<order_gate>(port);
  } catch (const exception& failure) {
    log_warning("requests do not go through shared memory: " + to_string(failure.why()));
    return nullptr;
  }
}

/// Serves the meetings of this node's ranks. Returns null if that is not possible: they then have no one-shot kernels.
std::unique_ptr<meeting_service> open_meetings(std::uint16_t port) {
  try {
    return std::make_unique<meeting_service>(meeting_address(port));
  } catch (const exception& failure) {
    log_warning("worlds over processes have no one-shot kernels: " + to_string(failure.why()));
    return nullptr;
  }
}

/// The interval at which a controller that stands by asks whether it is elected.
constexpr std::chrono::milliseconds campaign_interval{250};
/// Delay before a store that did not answer is asked again.
constexpr std::chrono::milliseconds retry_interval{50};
/// Delay before another attempt to serve, after this controller was elected and could not.
constexpr std::chrono::seconds service_retry_interval{1};

/// Returns how long a claim lasts. Processes serve for longer without a controller: a takeover fits into their leases.
nanoseconds claim_length(const controller_terms& terms) {
  return std::max<nanoseconds>(lease_length(terms) / 3, std::chrono::seconds{1});
}

/// Checks that this controller can listen where it will when it is elected.
void check_listening(const controller_options& options) {
  transport_credentials credentials = options.certificates.value_or(transport_credentials{});
  credentials.token = options.terms.token;
  const transport_listener made{{.mode = options.certificates ? transport_mode::mutual_tls : transport_mode::plain,
                                 .address = options.host,
                                 .port = options.port,
                                 .version = TROUPE_VERSION,
                                 .credentials = std::move(credentials)}};
}

} // namespace

/// A controller at work: a thread that handles frames, ticks and calls one at a time, in the order of their arrival.
struct controller::term {
  struct services {
    std::function<void(const error& why)> ended;
    std::function<void(std::string record)> decide{}; ///< Empty without a store.
    std::function<boot_time()> claimed_until{};
  };

  /// \p found: what the former controller has decided last; only with a store.
  term(const controller_options& options, const hooks& reports, services with,
       const std::optional<control_record>& found) {
    controller_hooks inner{.send = [this](peer_id to, std::string bytes) { transport->send(to, std::move(bytes)); },
                           .heard =
                               [told = reports.heard](const control_event& event) {
                                 log_info(describe(event));
                                 if (told) told(event);
                               },
                           .straggling = [](const absence_report& late) { log_warning(describe(late)); },
                           .refused = [](const error& why) { log_warning(to_string(why)); },
                           .without_rings = [](const error& why) { log_warning(to_string(why)); },
                           .kill = reports.kill,
                           .host_joined =
                               [](const process_identity& who) {
                                 log_info("the order service of host " + who.host + " has joined: " + describe(who));
                               },
                           .joined = reports.joined,
                           .wanted = reports.wanted,
                           .ended = std::move(with.ended),
                           .claimed_until = std::move(with.claimed_until)};
    if (with.decide) inner.decide = [to = std::move(with.decide)](const control_record& what) { to(encode(what)); };
    transport_credentials credentials = options.certificates.value_or(transport_credentials{});
    credentials.token = options.terms.token;
    // Ranks, spares, replacements whose predecessor's connection has not ended yet, drivers and order services.
    transport_limits limits;
    limits.connections += 3 * options.terms.world_size;
    transport = std::make_unique<transport_listener>(transport_listener_options{
        .mode = options.certificates ? transport_mode::mutual_tls : transport_mode::plain,
        .address = options.host,
        .port = options.port,
        .version = TROUPE_VERSION,
        .credentials = std::move(credentials),
        .limits = limits,
        .on_message =
            [this](peer_id from, std::string bytes) {
              post([this, from, bytes = std::move(bytes)] { server->hear(from, bytes); });
            },
        .on_lost =
            [this](peer_id which, const transport_fault& why) {
              post([this, which, how = why.is_by_peer ? session_end::closed : session_end::broken] {
                server->lose(which, how);
              });
            },
        .on_event =
            [](const transport_event& event) {
              const bool is_usual =
                  event.kind == transport_event_kind::admitted || event.kind == transport_event_kind::ended;
              const std::string text = event.peer.empty() ? event.text : event.peer + " " + event.text;
              is_usual ? log_info(text) : log_warning(text);
            }});
    // With a store, the order of each host belongs to its order service, which outlives controllers.
    const bool is_alone = options.store == nullptr;
    server = std::make_unique<control_server>(
        options.terms,
        order_service_settings{.limits = options.sequencing,
                               .wait = wait_of_order(options),
                               .on_news = [this] { post([this] { server->hear_of_order(); }); }},
        is_alone ? open_gate(transport->port()) : nullptr, std::move(inner));
    if (is_alone)
      meetings = open_meetings(transport->port());
    else
      turns.insert(turns.begin(), [this, found] { server->take_over(found); }); // before any frame
    thread = worker{[this] { run(); }};
  }
  term(const term&) = delete;
  term& operator=(const term&) = delete;

  ~term() {
    transport->stop();
    {
      const std::lock_guard lock{guard};
      is_ending = true;
    }
    changed.notify_all();
    thread.join();
  }

  void post(std::function<void()> turn) {
    {
      const std::lock_guard lock{guard};
      if (has_failed) return;
      turns.push_back(std::move(turn));
    }
    changed.notify_all();
  }

  void change(rank_change asked, std::shared_ptr<value_promise<world_processes>> reply) {
    post([this, asked = std::move(asked), reply = std::move(reply)] {
      server->change(asked, std::nullopt, [this, reply](const error& why) {
        why ? reply->deliver(why) : reply->deliver(server->state().processes());
      });
    });
  }

  void run() noexcept {
    name_this_thread("troupe/members");
    try {
      server->run_order();
      serve();
      server->end_order();
    } catch (...) {
      {
        const std::lock_guard lock{guard};
        has_failed = true;
      }
      server->end_order();
      server->fail(
          {.code = errc::world_failed,
           .text = "the controller has ended with an internal error: start the job again: " + current_error().text});
    }
  }

  /// Handles all arrived messages before each tick, so that a peer whose messages have arrived does not count as
  /// silent.
  void serve() {
    time_point due = later(steady_now(), control_server::tick_interval);
    std::unique_lock lock{guard};
    while (!is_ending || !turns.empty()) {
      changed.wait_until(lock, due, [this] { return is_ending || !turns.empty(); });
      const auto arrived = std::exchange(turns, {});
      lock.unlock();
      for (const auto& turn : arrived) turn();
      if (steady_now() >= due) {
        due = later(steady_now(), control_server::tick_interval);
        server->tick();
      }
      lock.lock();
    }
  }

  std::mutex guard; ///< Protects the next three members.
  std::vector<std::function<void()>> turns;
  bool is_ending = false;
  bool has_failed = false;
  condition changed;
  std::unique_ptr<transport_listener> transport; ///< Outlives the server, which sends through it.
  std::unique_ptr<control_server> server;        ///< Used by the thread below, once that runs.
  std::unique_ptr<meeting_service> meetings;     ///< Null if it cannot listen, and with a store.
  worker thread;
};

/// The present term, if there is one, and with a store the thread that makes terms.
struct controller::parts {
  parts(controller_options wanted, hooks told) : options{checked(std::move(wanted))}, reports{std::move(told)} {
    if (!options.store) {
      alone = std::make_unique<term>(options, reports, term::services{.ended = note_end()}, std::nullopt);
      present = alone.get();
      return;
    }
    check_listening(options); // at the takeover it would be too late
    electing = worker{[this] {
      name_this_thread("troupe/store");
      run_elections();
    }};
  }

  ~parts() {
    {
      const std::lock_guard lock{guard};
      is_ending = true;
    }
    changed.notify_all();
    if (electing.joinable()) electing.join();
  }

  [[nodiscard]] std::function<void(const error&)> note_end() {
    return [this](const error& why) {
      const std::lock_guard lock{guard};
      if (!ended) ended = why;
      changed.notify_all();
    };
  }

  /// Calls \p call for the present term. Returns false while this controller stands by.
  template <class Call>
  bool with_present(const Call& call) const {
    const std::lock_guard lock{guard};
    if (present != nullptr) call(*present);
    return present != nullptr;
  }

  void change(rank_change asked, const std::shared_ptr<value_promise<world_processes>>& reply) const {
    if (!with_present([&](term& to) { to.change(std::move(asked), reply); }))
      reply->deliver(error{.code = errc::stopping, .text = "this controller stands by: ask the one that is elected"});
  }

  /// Waits for at most \p span. Returns whether this controller is to end.
  bool rest(nanoseconds span) {
    std::unique_lock lock{guard};
    static_cast<void>(changed.wait_for(lock, span, [this] { return is_ending || ended.has_value(); }));
    return is_ending || ended.has_value();
  }

  void run_elections() {
    const auto new_name = [this] {
      return host_name() + " " + options.host + ":" + std::to_string(options.port) + " " + std::to_string(::getpid()) +
             " " + std::to_string(system_sources().draw_session());
    };
    std::string name = new_name();
    bool has_seen = false;                 ///< Whether the store has answered.
    std::optional<std::uint64_t> finished; ///< The number of the controller that has ended an earlier world.
    std::string obstacle;
    for (nanoseconds pause{}; !rest(pause); pause = campaign_interval) {
      try {
        const store_view seen = options.store->observe();
        const bool is_first = !std::exchange(has_seen, true);
        if (const auto record = record_of(seen.record); record && record->is_over) {
          if (is_first) finished = record->incarnation;
          // Those that stood by end with their world. One that was started later begins another.
          if (record->incarnation != finished) return note_end()(world_end_of(*record));
        }
        if (seen.leader && *seen.leader != name) {
          if (std::exchange(obstacle, *seen.leader) != obstacle)
            log_info("this controller stands by: " + obstacle + " is elected in " + options.store->name());
          if (is_first && reports.elected) reports.elected(false);
          continue;
        }
        const auto claim = leader_claim::campaign(options.store, name, claim_length(options.terms), boot_clock::now());
        if (!claim) continue;
        obstacle.clear();
        lead(*claim, finished);
        name = new_name();
        if (reports.elected && !rest(nanoseconds{0})) reports.elected(false);
      } catch (const exception& failure) {
        if (is_final(failure.why())) return note_end()(failure.why());
        if (std::exchange(obstacle, failure.why().text) != obstacle)
          log_warning("this controller is not elected: " + obstacle);
      }
    }
  }

  /// Decides until the claim is lost, the world has ended, or this controller is to end.
  void lead(leader_claim& claim, std::optional<std::uint64_t> finished) {
    const auto found = record_of(claim.record());
    if (found && found->is_over && found->incarnation != finished) {
      claim.resign();
      return note_end()(world_end_of(*found));
    }
    if (found && !found->is_over && found->of != epoch{0} && found->world_size != options.terms.world_size) {
      claim.resign();
      throw exception{errc::invalid_argument,
                      "the world in " + options.store->name() + " has " + std::to_string(found->world_size) +
                          " processes, and this controller was started for " +
                          std::to_string(options.terms.world_size) + ": give all its controllers the same number"};
    }
    decision.reset();
    const auto take = [this](std::string record) {
      {
        const std::lock_guard lock{guard};
        decision = std::move(record);
      }
      changed.notify_all();
    };
    std::unique_ptr<term> made;
    try {
      made = std::make_unique<term>(options, reports,
                                    term::services{.ended = note_end(),
                                                   .decide = take,
                                                   .claimed_until = [&claim] { return claim.valid_until(); }},
                                    found);
    } catch (const exception& failure) {
      claim.resign();
      log_warning("this controller was elected and cannot serve: " + failure.why().text);
      static_cast<void>(rest(service_retry_interval));
      return;
    }
    log_info("this controller is elected in " + options.store->name());
    set_present(made.get());
    if (reports.elected) reports.elected(true);
    keep(claim, *made);
    set_present(nullptr);
    const error why = claim.failure();
    const bool is_lost = claim.is_lost(boot_clock::now());
    made = nullptr; // ends all connections
    claim.resign();
    if (is_final(why)) return note_end()(why);
    if (is_lost)
      log_warning("this controller is not elected any more, and stands by: " + (why ? why.text : "another one may be"));
  }

  /// Renews the claim and writes decisions, as long as possible.
  void keep(leader_claim& claim, term& to) {
    boot_time next = boot_clock::now() + claim.renewal_period();
    bool has_failed = false;
    while (!claim.is_lost(boot_clock::now())) {
      std::optional<std::string> record;
      {
        std::unique_lock lock{guard};
        const nanoseconds span = has_failed ? retry_interval : next - boot_clock::now();
        static_cast<void>(changed.wait_for(lock, span, [&] { return is_ending || (!has_failed && decision); }));
        if (is_ending) return;
        record = decision;
      }
      has_failed = false;
      if (const boot_time now = boot_clock::now(); now >= next) {
        claim.renew(now);
        has_failed = claim.failure().code != errc::none;
        if (!has_failed) next = now + claim.renewal_period();
      }
      if (!record || claim.is_lost(boot_clock::now())) continue;
      if (!claim.decide(*record)) {
        if (is_final(claim.failure())) return;
        has_failed = true;
        continue;
      }
      {
        const std::lock_guard lock{guard};
        decision.reset();
      }
      to.post([server = to.server.get()] { server->decided(); });
    }
  }

  /// Returns whether the call that has failed fails again: else the store did not answer.
  [[nodiscard]] static bool is_final(const error& failure) {
    return failure.code != errc::none && failure.code != errc::missing;
  }

  void set_present(term* made) {
    const std::lock_guard lock{guard};
    present = made;
  }

  [[nodiscard]] static std::optional<control_record> record_of(const std::optional<std::string>& text) {
    if (!text) return std::nullopt;
    error why;
    auto made = decode_control_record(*text, why);
    if (why) throw exception{why};
    return made;
  }

  [[nodiscard]] static error world_end_of(const control_record& record) {
    return record.why.code == errc::stopping ? error{} : record.why;
  }

  const controller_options options;
  const hooks reports;
  mutable std::mutex guard; ///< Protects the next four members.
  bool is_ending = false;
  std::optional<error> ended;
  term* present = nullptr;
  std::optional<std::string> decision; ///< Of the present term, which waits for the store.
  condition changed;
  const process_mark creator;
  std::unique_ptr<term> alone; ///< Without a store.
  worker electing;             ///< With one.
};

controller::controller(controller_options options) : controller{std::move(options), hooks{}} {}

controller::controller(controller_options options, hooks reports)
  : parts_{std::make_unique<parts>(std::move(options), std::move(reports))} {}

controller::~controller() {
  // A fork has neither the threads nor the ranks: nothing of this process is ended there.
  if (parts_->creator.is_inherited()) static_cast<void>(parts_.release());
}

std::string controller::address() const {
  const std::uint16_t port = parts_->alone ? parts_->alone->transport->port() : parts_->options.port;
  return to_string(control_address{parts_->options.host, port});
}

void controller::process_ended(std::string name, std::int64_t pid, std::string how) {
  static_cast<void>(parts_->with_present([&](term& to) {
    to.post([server = to.server.get(), name = std::move(name), pid, how = std::move(how)] {
      server->process_ended(name, pid, how);
    });
  }));
}

void controller::stop() {
  const auto stop_world = [](term& to) { to.post([server = to.server.get()] { server->stop(); }); };
  if (!parts_->with_present(stop_world)) parts_->note_end()({});
}

std::future<void> controller::leave(int place, bool renumbers) {
  const auto done = std::make_shared<std::promise<void>>();
  parts_->change({.kind = rank_change_kind::leave, .place = place, .renumbers = renumbers},
                 std::make_shared<value_promise<world_processes>>([done](std::variant<world_processes, error> result) {
                   if (error* const why = std::get_if<error>(&result))
                     done->set_exception(std::make_exception_ptr(exception{std::move(*why)}));
                   else
                     done->set_value();
                 }));
  return done->get_future();
}

std::future<world_processes> controller::change(rank_change asked) {
  auto [reply, future] = make_value_promise<world_processes>();
  parts_->change(std::move(asked), std::move(reply));
  return std::move(future);
}

bool controller::wait(nanoseconds at_most) {
  std::unique_lock lock{parts_->guard};
  return parts_->changed.wait_for(lock, at_most, [this] { return parts_->ended.has_value(); });
}

error controller::reason() const {
  const std::lock_guard lock{parts_->guard};
  return parts_->ended.value_or(error{});
}

} // namespace troupe
