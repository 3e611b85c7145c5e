#include <troupe/device/overloaded.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/processes/control/control_codec.hpp>
#include <troupe/processes/control/control_server.hpp>

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <variant>

namespace troupe {

namespace {

/// Time limit for an order service of another host to create rings. One that needs longer does not serve in that epoch.
constexpr std::chrono::seconds time_for_rings{2};

/// Returns whether \p some are all ranks of a world, in their order.
bool is_each_rank(const std::vector<rank>& some) {
  for (std::size_t i = 0; i < some.size(); ++i)
    if (some[i] != rank{static_cast<int>(i)}) return false;
  return true;
}

controller_hooks with_defaults(controller_hooks hooks) {
  if (!hooks.send) hooks.send = [](peer_id, const std::string&) {};
  if (!hooks.refused) hooks.refused = [](const error&) {};
  return hooks;
}

} // namespace

control_sources system_sources() {
  return {
      .draw_session =
          [] {
            std::random_device entropy;
            return (std::uint64_t{entropy()} << 32U) | entropy() | 1U;
          },
      .wall_clock =
          [] {
            return std::chrono::duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
          }};
}

control_server::control_server(controller_terms terms, const order_service_settings& ordering,
                               std::shared_ptr<order_gate> gate, controller_hooks hooks, control_sources sources)
  : state_{std::move(terms), boot_clock::now()},
    order_{ordering},
    limits_{ordering.limits},
    gate_{std::move(gate)},
    hooks_{with_defaults(std::move(hooks))},
    sources_{std::move(sources)} {}

control_server::~control_server() {
  end_order();
}

void control_server::run_order() {
  if (!gate_) return;
  ordering_ = worker{[this] {
    name_this_thread("troupe/order");
    order_.run();
  }};
}

void control_server::end_order() {
  order_.stop();
  if (ordering_.joinable()) ordering_.join();
  sessions_.clear();
  latest_.clear();
  hosts_.clear();
}

void control_server::take_over(const std::optional<control_record>& found) {
  refresh_claim();
  const control_effects effects = state_.take_over(found, boot_clock::now());
  if (state_.current_epoch() != epoch{}) {
    opened_ = state_.current_epoch();
    outlasts_ = true;
    adopting(true);
    // A service notices the loss of its controller within the suspicion time.
    adopting_until_ = later(running_now(), state_.terms().suspicion + lease_length(state_.terms()));
    for (const auto& one : found->ranks)
      if (const auto session = state_.session_of(one.self); session && one.nonce) nonces_.emplace(*session, *one.nonce);
  }
  if (found) drivers_.follow(found->incarnation);
  carry_out(effects);
}

void control_server::adopting(bool is_adopting) {
  is_adopting_ = is_adopting;
  state_.await_order_service(is_adopting);
}

void control_server::decided() {
  is_deciding_ = false;
  carry_out(std::exchange(undecided_, {}));
}

void control_server::refresh_claim() {
  if (hooks_.claimed_until) state_.claim_until(hooks_.claimed_until());
}

void control_server::tick() {
  refresh_claim();
  const time_point now = steady_now();
  if (gate_) gate_->drain(now);
  state_.can_hold_order(can_hold_order());
  carry_out(state_.on_tick(boot_clock::now()));
  order_.expire(now);
  hear_of_order();
  watch_attached(running_now());
  hold_if_quiet(); // a driver may have been detached
  if (is_stop_due_ && !is_adopting_) stop();
  std::erase_if(nonces_, [this](const auto& one) { return !state_.may_serve(one.first); });
  std::erase_if(gone_, [this](session_id one) { return !nonces_.contains(one); });
}

void control_server::process_ended(std::string_view name, std::int64_t pid, const std::string& how) {
  carry_out(state_.on_process_ended(name, pid, how, boot_clock::now()));
}

void control_server::stop() {
  // An order service that has not joined yet could not be told to close the order.
  is_stop_due_ = is_adopting_ && state_.event().ranks > 1;
  if (!is_stop_due_) carry_out(state_.on_stop(boot_clock::now()));
}

void control_server::change(const rank_change& asked, std::optional<session_id> asker,
                            std::function<void(const error& why)> answered) {
  const change_id id = ++last_change_;
  changing_.emplace(id, std::move(answered));
  carry_out(state_.on_change_asked(id, asker, asked, boot_clock::now()));
}

void control_server::hear_of_change(session_id from, const change_request& asked) {
  const bool is_member = state_.has_member(from);
  if (!is_member && !drivers_.contains(from)) return; // SEC-2
  change(asked.what, is_member ? std::optional{from} : std::nullopt,
         [this, from, number = asked.number](const error& why) {
           change_reply reply{.number = number, .why = why};
           if (!why) reply.processes = state_.processes();
           drivers_.contains(from) ? drivers_.answer(from, reply) : send(from, reply);
         });
}

void control_server::fail(const error& why) const {
  control_event last = state_.event();
  last.phase = control_phase::failed;
  last.reason = why;
  if (hooks_.heard) hooks_.heard(last);
  if (hooks_.ended) hooks_.ended(why);
}

void control_server::hear(peer_id from, std::string_view bytes) {
  refresh_claim();
  error why;
  auto frame = decode_process_frame(bytes, why);
  if (!frame) return hooks_.refused(why);
  if (const auto* asked = std::get_if<join_request>(&frame->what)) return admit(from, *asked);
  if (const auto* asked = std::get_if<attach_request>(&frame->what)) return admit(from, *asked);
  if (drivers_.contains(frame->session)) {
    drivers_.hear(frame->session, frame->what, steady_now(), running_now());
    if (const auto* asked = std::get_if<change_request>(&frame->what)) hear_of_change(frame->session, *asked);
    return hold_if_quiet();
  }
  if (const auto host = hosts_.find(frame->session); host != hosts_.end()) return hear_of_host(*host, frame->what);
  if (const auto* asked = std::get_if<order_batch>(&frame->what)) return take(frame->session, *asked);
  if (auto* failed = std::get_if<failed_report>(&frame->what)) complete(frame->session, *failed);
  if (const auto* drained = std::get_if<drained_report>(&frame->what))
    if (const auto self = state_.rank_of(frame->session, drained->of)) note_successes(*self, *drained);
  if (const auto* notice = std::get_if<gate_notice>(&frame->what);
      notice != nullptr && state_.has_member(frame->session))
    note_gate(frame->session, notice->nonce);
  carry_out(state_.on_message(frame->session, frame->what, boot_clock::now()));
  if (const auto* asked = std::get_if<change_request>(&frame->what)) hear_of_change(frame->session, *asked);
}

void control_server::note_successes(rank from, const drained_report& drained) {
  order_.note_successes(from, drained.of, drained.succeeded);
  if (holder_ && drained.of == opened_) successes_[static_cast<std::size_t>(from.value())] = drained.succeeded;
}

void control_server::complete(session_id from, failed_report& report) {
  const auto self = state_.rank_of(from, report.of);
  if (!self || report.why.code != errc::deadline_exceeded) return;
  hang_verdict verdict = judge_hang(std::move(report.why), *self, order_.open_operations(report.of));
  report.why = std::move(verdict.why);
  if (verdict.ends) state_.suspect_link(verdict.ends->first, verdict.ends->second);
}

void control_server::take(session_id from, const order_batch& asked) {
  const time_point now = steady_now();
  carry_out(state_.on_sign_of_life(from, boot_clock::now()));
  const auto self = state_.rank_of(from, asked.of);
  if (!self) return; // the epoch has ended
  if (asked.of != opened_) return;
  const std::size_t with_rings = order_.connected();
  if (const error why = order_.receive(*self, asked.bytes, now))
    return carry_out(state_.on_rank_failed(from, asked.of, why, boot_clock::now()));
  if (hooks_.batch_added) hooks_.batch_added(*self, asked.of);
  if (order_.connected() < with_rings) announce(state_.event()); // the process could not accept its rings
}

void control_server::hear_of_order() {
  for (const order_service::loss& one : order_.take_losses()) {
    const auto session = one.of == state_.current_epoch() ? state_.session_of(one.rank) : std::nullopt;
    if (session)
      carry_out(state_.on_rank_failed(*session, one.of, one.why, boot_clock::now())); // or its loss is already known
  }
  drivers_.detach_failed();
  for (const auto& late : order_.take_straggling())
    if (hooks_.straggling) hooks_.straggling(*late);
}

void control_server::open_order(const control_effect::open_order& begun) {
  const epoch of = begun.of;
  const int world_size = begun.world_size;
  order_.learn(begun.told);
  opening next{.of = of,
               .routes = std::vector<order_route>(static_cast<std::size_t>(world_size)),
               .before = begun.before,
               .holder = std::exchange(holder_, std::nullopt)};
  serve_directive asked{.of = of, .world_size = world_size, .limits = limits_, .told = order_.commits()};
  bool is_any_unclaimed = false;
  for (int i = 0; i < world_size; ++i) {
    const auto session = state_.session_of(rank{i});
    const auto to = session ? sessions_.find(*session) : sessions_.end();
    if (to == sessions_.end()) continue; // its connection has just ended
    order_route& route = next.routes[static_cast<std::size_t>(i)];
    // A single rank has no peers to agree with.
    if (world_size > 1) route.rings = offer_rings(to->second, rank{i}, of);
    if (const auto& nonce = to->second.nonce; nonce && !route.rings) {
      next.candidates.emplace_back(i);
      asked.candidates.push_back({rank{i}, *nonce});
      is_any_unclaimed |= !std::exchange(to->second.was_claimable, true);
    }
    route.send = batch_sender(hooks_.send, to->second.to, *session, of);
  }
  const epoch before = std::exchange(opened_, of);
  adopting(false);
  is_ordering_ = true;
  next.until = later(running_now(), time_for_rings);
  opening_ = std::move(next);
  const bool is_any_asked = asked.candidates.size() > 1;
  // A service that has replaced one of the same name has served no epoch, and keeps nothing.
  const auto is_back = [this](const order_host& host) {
    return std::ranges::any_of(away_hosts_, [&](const auto& one) { return is_same_process(one, host.who); });
  };
  for (auto& one : hosts_) {
    order_host& host = one.second;
    host.is_asked = is_any_asked;
    host.ranks.clear();
    host.decides = false;
    host.unproven.reset();
    host.early.clear();
    asked.continued = {};
    if (opening_->holder == one.first && !begun.before.empty())
      asked.continued = {.before = begun.before, .successes = std::move(successes_)};
    asked.previous = host.served == before || is_back(host) ? before : epoch{};
    if (is_any_asked) hosts_.send(one, asked);
  }
  away_hosts_.clear();
  if (is_any_unclaimed && is_any_asked && hosts_.size() == 0) opening_->first_asked = std::move(asked);
  finish_opening_if_answered();
}

void control_server::finish_opening_if_answered() {
  if (opening_ && !opening_->first_asked && !is_any_host_asked()) finish_opening();
}

void control_server::finish_opening() {
  opening begun = *std::exchange(opening_, std::nullopt);
  std::vector<host_route> hosts;
  std::set<rank> taken;
  std::optional<session_id> decider;
  resume_ = nullptr;
  is_on_one_node_ = std::ranges::all_of(begun.routes, [](const order_route& one) { return one.rings.has_value(); });
  outlasts_ = state_.terms().has_successors && begun.routes.size() == 1;
  for (auto& one : hosts_) {
    order_host& host = one.second;
    std::erase_if(host.ranks, [&](rank each) {
      return std::ranges::find(begun.candidates, each) == begun.candidates.end() || !taken.insert(each).second;
    });
    if (host.ranks.empty()) continue; // or it has not answered
    host.served = begun.of;
    if (host.ranks.size() == begun.routes.size()) {
      host.decides = true;
      decider = one.first;
      resume_ = host.resume;
      is_on_one_node_ = true;
      outlasts_ = state_.terms().has_successors;
    }
    host.index = hosts.size();
    hosts.push_back({.ranks = host.ranks, .send = hosts_.batch_sender_to(one, begun.of)});
  }
  state_.note_outlasting(begun.of, outlasts_);
  order_.open(begun.of, std::move(begun.routes), std::move(hosts), begun.before);
  if (resume_) order_.learn(commits_of(*resume_, begun.of)); // in case that host and all ranks are lost
  if (begun.closed) order_.close(begun.closed, steady_now());
  state_.can_hold_order(can_hold_order()); // not only at the next tick: a change may be asked for before
  carry_out(std::exchange(held_, {}));
  if (begun.before.empty() || decider == begun.holder) return;
  fail_opened("the order of the ranks, which have changed as planned, does not go on where it was held: the order "
              "service there has not answered, or does not serve all of them");
}

void control_server::note_kept(session_id from, epoch kept) {
  if (!is_adopting_ || is_kept_ || kept == epoch{} || !state_.rank_of(from, kept)) return;
  is_kept_ = true;
  for (auto& one : hosts_)
    if (const auto report = std::exchange(one.second.unproven, std::nullopt); report && adopt_order(one, *report))
      break;
}

void control_server::fail_unadopted(running_time now) {
  if (!is_adopting_ || now < adopting_until_) return;
  const control_event event = state_.event();
  if (event.phase != control_phase::serving && event.phase != control_phase::finishing) return;
  adopting(false);
  if (event.ranks < 2) return; // it needs no service
  fail_opened(
      "the order service of the epoch has not joined the controller that took it over, within the suspicion time "
      "and that of a lease: it has ended, hangs, or looks for a controller at other addresses");
}

void control_server::fail_opened(std::string why) {
  const auto session = opened_ == state_.current_epoch() ? state_.session_of(rank{0}) : std::nullopt;
  if (!session) return;
  carry_out(state_.on_rank_failed(*session, opened_, {.code = errc::communicator_failed, .text = std::move(why)},
                                  boot_clock::now()));
}

bool control_server::adopt_order(session_table<order_host>::value_type& from, const serving_report& report) {
  if (!is_adopting_ || opening_ || report.of != opened_ || report.of != state_.current_epoch()) return false;
  const control_event event = state_.event();
  if (event.phase != control_phase::serving && event.phase != control_phase::finishing) return false;
  if (report.ranks.size() != static_cast<std::size_t>(event.ranks) || !is_each_rank(report.ranks)) return false;
  if (!is_kept_) {
    from.second.unproven = report;
    return true;
  }
  adopting(false);
  is_ordering_ = is_on_one_node_ = true;
  order_host& host = from.second;
  host.served = opened_;
  host.index = 0;
  host.ranks = report.ranks;
  host.decides = true;
  host.resume = resume_ = report.resume;
  std::vector<host_route> hosts{{.ranks = host.ranks, .send = hosts_.batch_sender_to(from, opened_)}};
  order_.open(opened_, std::vector<order_route>(host.ranks.size()), std::move(hosts));
  if (resume_) order_.learn(commits_of(*resume_, opened_));
  order_.expect_farewells(report.retiring);
  announce(event);
  for (const std::string& bytes : std::exchange(host.early, {})) hear_batch(host, bytes);
  return true;
}

session_table<control_server::order_host>::value_type* control_server::find_decider() {
  const auto found =
      std::ranges::find_if(hosts_, [&](const auto& one) { return one.second.served == opened_ && one.second.decides; });
  return found != hosts_.end() ? &*found : nullptr;
}

bool control_server::are_at_one_gate() const {
  const auto have_all = [this](auto gate) {
    return std::ranges::all_of(sessions_, [&](const auto& one) {
      // Others do not count (SEC-2): a refused process has a session until the refusal is sent, a lost one until its
      // connection ends.
      return !state_.has_member(one.first) || (one.second.*gate).has_value();
    });
  };
  return have_all(&process_connection::gate) || (hosts_.size() == 1 && have_all(&process_connection::nonce));
}

bool control_server::can_hold_order() {
  if (!is_ordering_ || opening_) return false;
  if (std::ranges::any_of(hosts_, [&](const auto& one) { return one.second.served == opened_; }))
    return find_decider() != nullptr && are_at_one_gate();
  // The order service of a host would decide the next order.
  return hosts_.size() < 1 ||
         std::ranges::count_if(sessions_, [](const auto& one) { return one.second.nonce.has_value(); }) < 2;
}

void control_server::hold_if_quiet() {
  is_holding_ = is_holding_ && state_.waits_for_order();
  if (!is_holding_ || !drivers_.are_held()) return;
  is_holding_ = false;
  const bool can_hold = can_hold_order();
  if (auto* const decider = can_hold ? find_decider() : nullptr)
    return hosts_.send(*decider, hold_order_directive{opened_, holds_for_});
  const bool is_held = can_hold && order_.hold(steady_now());
  if (is_held) {
    is_ordering_ = false;
    if (hooks_.order_closed) hooks_.order_closed(opened_);
  }
  carry_out(state_.on_order_held(is_held, boot_clock::now()));
}

void control_server::note_order_held(session_table<order_host>::value_type& by, const order_held_report& report) {
  if (report.of != opened_ || opening_ || !is_ordering_ || by.second.served != opened_) return;
  const bool is_awaited = state_.waits_for_order() && report.next == holds_for_;
  if (!report.is_held) {
    if (is_awaited) carry_out(state_.on_order_held(false, boot_clock::now()));
    return;
  }
  if (!is_awaited) // the ranks have gone on, and it has dropped what they asked
    return fail_host(by.second, {.code = errc::communicator_failed,
                                 .text = "it has stopped for a change of the ranks that had been given up"});
  holder_ = by.first;
  successes_.assign(by.second.ranks.size(), 0);
  order_.mark_held(steady_now());
  is_ordering_ = false;
  if (hooks_.order_closed) hooks_.order_closed(opened_);
  carry_out(state_.on_order_held(true, boot_clock::now()));
}

void control_server::close_order(const error& why) {
  if (!std::exchange(is_ordering_, false)) return;
  if (hooks_.order_closed) hooks_.order_closed(opened_);
  // Close the order before the next message to the ranks: that message carries the number of decisions, and the ranks
  // launch all operations that these decisions release.
  if (!opening_) return order_.close(why, steady_now());
  opening_->closed = why;
  opening_->first_asked.reset();
  finish_opening_if_answered();
}

void control_server::add_host(peer_id from, const process_identity& who, const join_welcome& welcome) {
  for (auto it = hosts_.begin(); it != hosts_.end();) { // the same service may have connected again
    const auto one = it++;
    if (one->second.to == from || is_same_process(one->second.who, who)) lose_host(one->first);
  }
  const auto made = hosts_.admit(welcome, {{.to = from}, who}, running_now());
  for (auto& [session, process] : sessions_) {
    if (process.nonce) hosts_.send(*made, claim_directive{*process.nonce});
    process.was_claimable = process.nonce.has_value();
  }
  if (opening_ && opening_->first_asked) {
    made->second.is_asked = true;
    hosts_.send(*made, *std::exchange(opening_->first_asked, std::nullopt));
  }
  if (hooks_.host_joined) hooks_.host_joined(who);
}

void control_server::hear_of_host(session_table<order_host>::value_type& from, const process_message& what) {
  order_host& host = from.second;
  host.silence.end(running_now());
  if (const auto* closed = std::get_if<gate_closed>(&what)) return note_departure(closed->nonce);
  if (const auto* held = std::get_if<order_held_report>(&what)) return note_order_held(from, *held);
  if (const auto* report = std::get_if<serving_report>(&what)) {
    if (adopt_order(from, *report)) return;
    if (is_adopting_ && report->of == opened_ && report->ranks.empty()) {
      adopting(false);
      return fail_opened("its order service has stopped deciding, because the former controller has closed or held the "
                         "order");
    }
    if (!opening_ || report->of != opening_->of || !std::exchange(host.is_asked, false)) return;
    host.ranks = report->ranks;
    host.resume = report->resume;
    return finish_opening_if_answered();
  }
  const auto* batch = std::get_if<order_batch>(&what);
  if (batch == nullptr || batch->of != opened_ || opening_) return;
  if (host.unproven) return host.early.push_back(batch->bytes);
  if (host.served == opened_) hear_batch(host, batch->bytes);
}

void control_server::hear_batch(const order_host& from, std::string_view bytes) {
  if (const error why = order_.receive_from_host(from.index, bytes, steady_now())) fail_host(from, why);
  hear_of_order();
}

bool control_server::is_any_host_asked() {
  return std::ranges::any_of(hosts_, [](const auto& one) { return one.second.is_asked; });
}

void control_server::fail_host(const order_host& host, error why) {
  if (host.served != state_.current_epoch() || host.ranks.empty()) return;
  why.text = "the order service of " + describe(host.who) + ": " + why.text;
  if (const auto session = state_.session_of(host.ranks.front()))
    carry_out(state_.on_rank_failed(*session, host.served, std::move(why), boot_clock::now()));
}

void control_server::lose_host(session_id which) {
  const auto found = hosts_.find(which);
  if (found->second.served == opened_ && !found->second.ranks.empty()) away_hosts_.push_back(found->second.who);
  fail_host(found->second, {.code = errc::communicator_failed, .text = "it has ended, or its connection was lost"});
  hosts_.erase(found);
  finish_opening_if_answered();
}

void control_server::watch_attached(running_time now) {
  const nanoseconds suspicion = state_.terms().suspicion;
  // A service that still runs notices the silence and joins again.
  for (const session_id one : hosts_.find_silent(now, suspicion)) lose_host(one);
  if (now - beat_ >= state_.terms().heartbeat) {
    beat_ = now;
    hosts_.send_to_all(heartbeat{});
    drivers_.beat();
  }
  drivers_.watch(now, suspicion);
  if (opening_ && now >= opening_->until) finish_opening();
  fail_unadopted(now);
}

std::optional<ring_connection> control_server::offer_rings(process_connection& to, rank self, epoch of) {
  if (!to.gate) return std::nullopt;
  const auto& [socket, nonce] = *to.gate;
  try {
    return ring_connection::offer(socket, session_in(nonce, of), self, peer_process::of_socket(socket), order_.bell());
  } catch (const exception& failure) {
    error why = failure.why();
    why.text = "the requests of rank " + to_string(self) + " go through its control connection, because it could not " +
               "be given rings in shared memory: " + why.text;
    if (hooks_.without_rings) hooks_.without_rings(why);
    to.gate.reset();
    return std::nullopt;
  }
}

controller_message control_server::mark(session_id to, const controller_message& what) const {
  controller_message marked = what;
  const auto decided = [&](epoch of) {
    const auto self = state_.rank_of(to, of);
    return self ? order_.batches_for(*self, of) : 0;
  };
  std::visit(overloaded{
                 [&](formation_directive& one) {
                   if (one.of != opened_) return;
                   one.has_rings = order_.has_rings(one.self);
                   one.is_on_one_node = is_on_one_node_;
                   one.resume = resume_ ? resume_ : order_.points();
                 },
                 [&](prepare_directive& one) { one.is_on_one_node = is_on_one_node_ && are_at_one_gate(); },
                 [&](lease_grant& one) { one.outlasts = outlasts_ && one.of == opened_; },
                 [&](quiesce_directive& one) { one.decided = decided(one.of); },
                 [&](stop_directive& one) { one.decided = decided(state_.current_epoch()); },
                 [](auto&) {},
             },
             marked);
  return marked;
}

void control_server::announce(control_event event) {
  if (event.epoch == opened_) event.ring_ranks = static_cast<int>(order_.connected());
  tell_drivers(event);
  if (hooks_.heard) hooks_.heard(event);
}

void control_server::admit(peer_id from, const attach_request& asked) {
  const session_id session = sources_.draw_session();
  error why = state_.objection_to_peer(asked.token);
  if (!why && !asked.is_order_service) why = drivers_.objection();
  if (why) {
    hooks_.refused(why);
    hooks_.send(from, encode(controller_frame{session, join_refusal{std::move(why)}}));
    return;
  }
  if (latest_.contains(from)) return; // SEC-2: it has joined as a process
  const join_welcome welcome{.session = session,
                             .heartbeat = state_.terms().heartbeat,
                             .suspicion = state_.terms().suspicion,
                             .has_successors = state_.terms().has_successors};
  if (asked.is_order_service) return add_host(from, asked.who, welcome);
  drivers_.admit(from, gate_ && asked.nonce ? gate_->claim(*asked.nonce, steady_now()) : std::nullopt, welcome,
                 running_now());
  tell_drivers(state_.event());
}

void control_server::tell_drivers(const control_event& event) {
  world_report now{.of = event.epoch,
                   .world_size = event.ranks,
                   .is_ready = event.phase == control_phase::serving && event.epoch == opened_,
                   .reason = event.reason};
  const auto refuse = [&](errc code, std::string text) {
    now.is_ready = false;
    now.reason = {.code = code, .text = std::move(text)};
  };
  if (state_.agreed_value("ordering") == "caller")
    refuse(errc::unsupported, "the world's ordering is caller: only its own processes can ask its ranks");
  else if (now.is_ready && event.ranks == 1)
    refuse(errc::unsupported, "the world has a single rank, which only its own process can ask");
  else if (!now.is_ready && !now.reason)
    refuse(errc::rebuilding, "the world is not ready: " + describe(event));
  if (now.is_ready) now.resume = resume_ ? resume_ : order_.points();
  now.is_held = state_.is_switching();
  drivers_.tell(now, is_ordering_ && !opening_ && now.is_ready ? opened_ : epoch{});
}

void control_server::send(session_id to, const controller_message& what) {
  const auto peer = sessions_.find(to);
  if (peer == sessions_.end()) return;
  if (const auto* refusal = std::get_if<join_refusal>(&what)) hooks_.refused(refusal->why);
  hooks_.send(peer->second.to, encode(controller_frame{to, mark(to, what)}));
}

void control_server::admit(peer_id from, const join_request& asked) {
  const session_id session = sources_.draw_session();
  const control_effects effects = state_.on_join(session, asked, boot_clock::now(), sources_.wall_clock());
  process_connection& made = sessions_[session]; // at least until it has been answered
  made.to = from;
  // Before the effects, which may form an epoch. SEC-2: a request that was refused claims nothing.
  if (asked.nonce && state_.has_member(session)) note_gate(session, *asked.nonce);
  carry_out(effects);
  if (!state_.has_member(session)) return; // SEC-2: refused, so nothing else changes
  note_kept(session, asked.kept);
  if (hooks_.joined) hooks_.joined(asked.who);
  const auto [known, is_new] = latest_.try_emplace(from, session);
  if (is_new) return;
  const session_id before = std::exchange(known->second, session);
  sessions_.erase(before); // the process uses the new session from now on
  carry_out(
      state_.on_session_lost(before, session_end::closed, boot_clock::now())); // its process has ended that session
}

void control_server::note_gate(session_id from, const ring_session& nonce) {
  process_connection& of = sessions_.at(from);
  of.gate = gate_ ? gate_->claim(nonce, steady_now()) : std::nullopt;
  of.nonce = of.gate ? std::nullopt : std::optional{nonce};
  of.was_claimable = hosts_.size() > 0;
  if (!of.nonce) return;
  std::erase_if(nonces_, [&](const auto& one) { return one.second == nonce; }); // it may go on in another session
  nonces_.insert_or_assign(from, nonce);
  gone_.erase(from);
  hosts_.send_to_all(claim_directive{nonce});
}

void control_server::note_departure(const ring_session& nonce) {
  const auto found = std::ranges::find(nonces_, nonce, [](const auto& one) { return one.second; });
  if (found == nonces_.end()) return; // or it has connected to the gate again
  gone_.insert(found->first);
  carry_out(state_.on_lease_ended(found->first, boot_clock::now()));
}

void control_server::lose(peer_id process, session_end how) {
  if (drivers_.lose(process)) return;
  const auto host = hosts_.find(process);
  if (host != hosts_.end()) return lose_host(host->first);
  const auto known = latest_.extract(process);
  if (known.empty()) return;
  const session_id which = known.mapped();
  sessions_.erase(which);
  carry_out(state_.on_session_lost(which, how, boot_clock::now()));
  if (gone_.contains(which)) carry_out(state_.on_lease_ended(which, boot_clock::now()));
}

void control_server::decide(control_record what) {
  if (!hooks_.decide) return;
  for (auto& one : what.ranks)
    if (const auto known = nonces_.find(one.session); known != nonces_.end()) one.nonce = known->second;
  is_deciding_ = true;
  hooks_.decide(what);
}

void control_server::carry_out(const control_effects& effects) {
  for (const auto& effect : effects) {
    if (is_deciding_) {
      undecided_.push_back(effect);
      continue;
    }
    const bool is_for_process = std::holds_alternative<control_effect::send>(effect) ||
                                std::holds_alternative<control_effect::close_session>(effect);
    if (opening_ && is_for_process) {
      held_.push_back(effect);
      continue;
    }
    std::visit(overloaded{
                   [this](const control_effect::send& one) { send(one.to, one.what); },
                   [this](const control_effect::close_session& one) { sessions_.erase(one.which); },
                   [this](const control_effect::kill_process& one) {
                     if (hooks_.kill) hooks_.kill(one.who);
                   },
                   [this](const control_effect::request_process& one) {
                     if (hooks_.wanted) hooks_.wanted(one.place);
                   },
                   [this](const control_effect::announce& one) { announce(one.event); },
                   [this](const control_effect::open_order& one) { open_order(one); },
                   [this](const control_effect::hold_order& one) {
                     drivers_.hold(one.next);
                     is_holding_ = true;
                     holds_for_ = one.next;
                     hold_if_quiet();
                   },
                   [this](const control_effect::close_order& one) { close_order(one.why); },
                   [this](const control_effect::leave_order& one) {
                     if (one.of == opened_) order_.release(one.self);
                   },
                   [this](const control_effect::decide& one) { decide(one.what); },
                   [this](const control_effect::changed& one) {
                     if (const auto asked = changing_.extract(one.which)) asked.mapped()(one.why);
                   },
                   [this](const control_effect::end& one) {
                     hosts_.send_to_all(stop_directive{.why = one.why});
                     const error why = one.why ? one.why : error{.code = errc::stopping, .text = "the world has ended"};
                     drivers_.tell({.of = opened_, .is_over = true, .reason = why}, {});
                     if (hooks_.ended) hooks_.ended(one.why);
                   },
               },
               effect);
  }
}

} // namespace troupe
