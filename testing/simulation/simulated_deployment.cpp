#include <troupe/testing/simulation/simulated_deployment.hpp>

#include <troupe/collectives/operation/lanes/lane.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

namespace troupe::simulation {

namespace {

using namespace std::chrono_literals;

void wait_until(time_point when) {
  // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): it is called in fibers, which have a current one
  if (when > virtual_now()) fibers::current()->sleep(when - virtual_now());
}

/// Returns the epoch that a request in epoch \p meant_for specifies. Half of the requests in the first epoch specify
/// none. For 0, returns an epoch that the world never reaches.
epoch named_for(epoch meant_for, std::uint64_t drawn) {
  if (meant_for == epoch{0}) return epoch{std::numeric_limits<std::uint64_t>::max()};
  return meant_for == epoch{1} && drawn % 2 == 0 ? epoch{} : meant_for;
}

lane name_of(std::size_t lane) {
  return lane::named("simulated " + std::to_string(lane));
}

/// Returns the longest time from a request to its answer. Deadlines bound every wait.
nanoseconds longest_answer(const scenario& of) {
  nanoseconds all = 1s;
  if (of.processes) all += 3s; // timeouts for a controller, and for ranks that do not answer a driver, are long
  for (const planned_fault& one : of.faults)
    if (one.kind == fault_kind::jump || one.kind == fault_kind::stopped_process || separates(one.kind) ||
        is_of_time(one.kind) || is_of_store(one.kind))
      all += one.span;
  for (const planned_request& one : of.requests)
    if (one.what == operation_kind::capture || one.what == operation_kind::registration)
      return all + 3s + of.ranks * 500us;
  return all;
}

} // namespace

simulated_deployment::simulated_deployment(const scenario& of, simulated_machine& on, system_under_test& where,
                                           simulated_memory& memory, simulation_ledger& ledger,
                                           simulated_faults& faults, submit_policy how)
  : of_{of},
    on_{on},
    where_{where},
    memory_{memory},
    ledger_{ledger},
    faults_{faults},
    how_{how},
    silent_until_(of.lanes) {
  for (auto& lane : silent_until_) lane.resize(static_cast<std::size_t>(of.ranks));
  begin([this] { ask_world(); });
  for (const planned_request& one : of.requests) {
    if (one.what == operation_kind::registration) begin([this, &one] { ask_registration(one); });
    if (one.what == operation_kind::capture) begin([this, &one] { ask_capture(one); });
  }
  for (std::size_t lane = 0; lane < of.lanes; ++lane)
    for (int r = 0; r < of.ranks; ++r) begin([this, lane, r] { ask_in(lane, rank{r}); });
  for (const planned_fault& one : of.faults) begin([this, &one] { raise(one); });
  for (const planned_credit& one : of.credits) begin([this, &one] { ask_credit(one); });
  for (const planned_split& one : of.splits) begin([this, &one] { use_sub_world(one); });
  for (const planned_departure& one : of.departures) begin([this, &one] { depart(one); });
}

simulated_deployment::~simulated_deployment() {
  for (worker& one : clients_) one.detach();
}

void simulated_deployment::begin(std::function<void()> part) {
  ++busy_;
  clients_.emplace_back([this, part = std::move(part)] {
    part();
    --busy_;
  });
}

void simulated_deployment::wait_for_time_of(const planned_request& what) const {
  wait_until(began_ + what.at);
}

void simulated_deployment::ask_world() {
  for (const planned_request& one : of_.requests) {
    if (one.lane || one.what == operation_kind::registration || one.what == operation_kind::capture ||
        one.what == operation_kind::replay)
      continue;
    wait_for_time_of(one);
    const world_event latest = where_.latest();
    world_request asked{.parts = {}, .epoch = latest.epoch, .deadline = one.deadline};
    const std::vector<rank> ranks = ranks_in(latest);
    memory_.ask_among(one, ranks, latest.epoch);
    for (const rank self : ranks) asked.parts.push_back(memory_.part_of(one, self));
    const epoch now = asked.epoch;
    where_.ask_world(std::move(asked), ledger_.expect(one, std::nullopt, now));
  }
}

void simulated_deployment::ask_in(std::size_t lane, rank self) {
  for (const planned_request& one : of_.requests) {
    if (one.lane != lane || one.split) continue;
    const auto late = mix(of_.seed, one.number, static_cast<std::uint64_t>(self.value()));
    wait_until(began_ + one.at + nanoseconds{static_cast<nanoseconds::rep>(late) & 0xFFFFFFFFFFFF} % one.jitter);
    const epoch meant_for = epoch_of(one);
    epoch& silent = silent_until_[lane][static_cast<std::size_t>(self.value())];
    if (one.silent == self) silent = meant_for;
    if (!where_.has_client(self, meant_for)) continue;
    const bool too_early = meant_for == epoch{0} && how_ == submit_policy::waits_for_ready;
    if (memory_.is_among(one, self) && !memory_.takes_part(one, self)) continue;
    if (silent > meant_for || (silent == meant_for && silent != epoch{0}) || too_early) continue;
    catch_up(lane, self, meant_for);
    where_.ask_rank(self, lane,
                    {.what = memory_.part_of(one, self, one.disagreeing == self),
                     .epoch = named_for(meant_for, late),
                     .deadline = one.deadline,
                     .lane = name_of(lane)},
                    ledger_.expect(one, self, meant_for));
    if (one.cancelling == self) {
      silence(lane, self);
      where_.withdraw(self, lane);
    } else if (ledger_.was_busy(one, self) || (one.commit && !has_committed(one, self))) {
      // The next request of a client that was told to come back would take this one's position. A client would repeat
      // it; this one says no more in the epoch. Nor does one that does not know whether its state is committed.
      silent = std::max(silent, meant_for);
    }
  }
}

std::vector<rank> simulated_deployment::ranks_in(const world_event& now) const {
  if (!now.origins.empty()) return now.origins;
  std::vector<rank> all; // the world has not reported any event yet
  for (int r = 0; r < of_.ranks; ++r) all.emplace_back(r);
  return all;
}

epoch simulated_deployment::epoch_of(const planned_request& what) {
  const auto known = epochs_.find(what.number);
  if (known != epochs_.end()) return known->second;
  const world_event now = where_.latest();
  memory_.ask_among(what, ranks_in(now), now.epoch);
  // If the world is not ready, no client may use the epoch, including clients that make the request later.
  return epochs_[what.number] = now.phase == world_phase::ready ? now.epoch : epoch{0};
}

void simulated_deployment::depart(const planned_departure& one) {
  wait_until(began_ + one.at);
  const auto ask = [&](rank_change_kind kind) {
    const std::string name = std::string{to_string(kind)} + " " + std::to_string(one.number);
    const auto answer = std::make_shared<std::optional<errc>>();
    const auto is_open = where_.change(one, kind, [answer, name, to = &ledger_](const error& why) {
      if (*answer) to->doubled(name);
      *answer = why.code;
    });
    const auto is_waiting = [&] { return !*answer && is_open && is_open() && !where_.has_ended(); };
    const time_point latest = virtual_now() + longest(of_);
    while (is_waiting() && virtual_now() < latest) fibers::current()->sleep(1ms);
    if (is_waiting()) ledger_.stuck(name + " was not answered");
    return answer->value_or(errc::stopping);
  };
  const errc left = ask(one.is_drain ? rank_change_kind::drain : rank_change_kind::leave);
  if (left != errc::none || !one.span) return;
  fibers::current()->sleep(*one.span);
  static_cast<void>(ask(rank_change_kind::join));
}

void simulated_deployment::catch_up(std::size_t lane, rank self, epoch now) {
  if (!of_.processes || !of_.processes->plans_changes || now == epoch{}) return;
  const auto known = std::exchange(caught_up_[{lane, self}], {where_.process_of(self), now});
  if (known.first == where_.process_of(self) && ledger_.has_been_there(self, known.second, now)) return;
  const epoch since = ledger_.unbroken_since(now);
  epoch first = since; // of its process
  while (first < now && first != epoch{} && !where_.has_client(self, first))
    first = ledger_.first_of(self, first.next());
  if (first == epoch{} || first > now) return;
  first = ledger_.there_since(self, first, now); // it may have been away meanwhile
  if (first <= since) return;
  std::uint64_t complete = ledger_.complete_in(first, lane) - ledger_.complete_in(since, lane);
  for (const planned_request& one : of_.requests) {
    const auto asked = epochs_.find(one.number);
    if (one.lane != lane || asked == epochs_.end() || asked->second == epoch{}) continue;
    if (ledger_.unbroken_since(asked->second) != since || asked->second >= first) continue;
    if (complete > 0) {
      --complete;
      continue;
    }
    where_.ask_rank(
        self, lane,
        {.what = memory_.part_of(one, self), .epoch = first, .deadline = one.deadline, .lane = name_of(lane)},
        ledger_.expect(one, self, first));
  }
}

void simulated_deployment::raise(const planned_fault& one) {
  const device_id device{one.where.value()};
  const std::size_t lane = one.number % of_.lanes;
  if (one.during) {
    faults_.count(one);
    return where_.strike(one);
  }
  wait_until(began_ + one.at);
  switch (one.kind) {
    case fault_kind::device:
      faults_.count(one);
      return on_.api->fail_next(device, {.code = errc::device_failed, .text = "injected by the simulation"});
    case fault_kind::sticky:
      faults_.count(one);
      return on_.api->fail_next(device, {.code = errc::process_poisoned, .text = "injected by the simulation"});
    case fault_kind::ended_actor: faults_.count(one); return where_.end_rank(one.where);
    case fault_kind::ended_client:
      faults_.count(one);
      silence(lane, one.where);
      return where_.end_client(one.where, lane);
    case fault_kind::killed_world:
    case fault_kind::dropped_world: faults_.count(one); return where_.end_world(one.kind);
    case fault_kind::jump: faults_.count(one); return fibers::current()->jump(one.span);
    case fault_kind::killed_process:
    case fault_kind::stopped_process:
    case fault_kind::cut_link:
    case fault_kind::slow_link:
    case fault_kind::lost_controller:
    case fault_kind::killed_service:
    case fault_kind::stopped_service:
    case fault_kind::cut_service:
    case fault_kind::partition:
    case fault_kind::suspended_host:
    case fault_kind::stopped_controller:
    case fault_kind::drift:
    case fault_kind::boot_jump:
    case fault_kind::slow_reader:
    case fault_kind::long_link:
    case fault_kind::unreachable_store:
    case fault_kind::cut_store: faults_.count(one); return where_.strike(one);
    default: break; // faults inside the communicators: see simulated_faults
  }
}

void simulated_deployment::silence(std::size_t lane, rank self) {
  silent_until_[lane][static_cast<std::size_t>(self.value())] = where_.latest().epoch;
}

nanoseconds longest(const scenario& of) {
  const auto& most = of.limits;
  nanoseconds all = most.hang + most.launch + most.drain + most.release + 400ms;
  // Processes must join again, silence must be noticed, and the controller waits before it tries the same ranks again.
  const auto lost = static_cast<std::size_t>(
      std::ranges::count_if(of.faults, [&](const planned_fault& one) { return may_replace_controller(of, one); }));
  if (of.processes) all += (of.recovery.rebuilds + 1) * (1 + lost) * 3s;
  for (std::size_t i = 0; i <= of.recovery.rebuilds; ++i) all += most.form + most.abort + of.recovery.backoff * 16;
  for (const planned_fault& one : of.faults) all += one.span;
  // A rank may hang in a capture or in a registration.
  const auto asks = [&](operation_kind kind) {
    return std::ranges::find(of.requests, kind, &planned_request::what) != of.requests.end();
  };
  if (asks(operation_kind::capture)) all += 3s;
  if (asks(operation_kind::registration)) all += 2 * (most.drain + most.form);
  if (!of.splits.empty()) all += 2 * (most.drain + most.form); // a split waits for its ranks, and for its sub-world
  all += of.departures.size() * 2s;                            // a join waits for a process
  if (of.processes && of.processes->has_services) all += 2s;   // the time that a controller gives a service
  return all + 1s;
}

void note_resume_points(const scenario& of, const world_event& event, std::uint64_t process, simulation_ledger& ledger,
                        world_number where, std::size_t order_moves) {
  if (event.phase != world_phase::ready) return;
  std::vector<std::optional<std::uint64_t>> commits(of.lanes);
  for (std::size_t i = 0; event.resume && i < of.lanes; ++i)
    if (const resume_point* const point = find_point(*event.resume, name_of(i))) commits[i] = point->commit;
  ledger.told({.of = where,
               .process = process,
               .in = event.epoch,
               .at = virtual_now(),
               .commits = std::move(commits),
               .has_points = event.resume != nullptr,
               .has_survivors = !event.resume || event.resume->has_survivors,
               .order_moves = order_moves});
  if (!event.resume) return ledger.resumed(where, event.epoch, {}); // no operation has been ordered yet
  simulation_ledger::resumption points{.counted_from = event.resume->counted_from};
  const auto note = [&](const std::optional<std::size_t>& number, const std::optional<lane>& by) {
    const resume_point* const point = find_point(*event.resume, by);
    points.complete[number] = point == nullptr ? 0 : point->complete;
    if (point == nullptr || point->agreed_unlisted > 0) {
      points.agreed[number] = point == nullptr ? std::optional{simulation_ledger::resumption::values{}} : std::nullopt;
      return;
    }
    auto& values = points.agreed[number].emplace();
    for (const auto& value : point->agreed) values.emplace(std::pair{value->epoch, value->position}, value->bytes);
  };
  if (!of.processes) note(std::nullopt, std::nullopt); // over processes, each driver has its own lane
  for (std::size_t i = 0; i < of.lanes; ++i) note(i, name_of(i));
  ledger.resumed(where, event.epoch, std::move(points));
}

namespace {

/// The lane of the requests that show whether a world serves. No other request is drawn for it.
constexpr std::size_t lane_of_probes = 1'000;

constexpr nanoseconds longer_than_a_lease = 300ms;

/// Requests a barrier from all ranks of the world and returns whether it succeeds at all of them. Uses a lane of its
/// own, because a process that has joined does not know how often its peers have asked before.
bool is_served(const scenario& of, system_under_test& where, std::size_t attempt) {
  fibers& threads = *fibers::current();
  const world_event now = where.latest();
  if (now.phase != world_phase::ready) return false;
  struct results {
    std::size_t open = 0, done = 0;
  };
  const auto counted = std::make_shared<results>();
  std::vector<worker> clients;
  for (const rank self : now.origins) {
    if (!where.has_client(self, now.epoch)) continue;
    ++counted->open;
    clients.emplace_back([&where, self, now, counted, attempt] {
      where.ask_rank(self, lane_of_probes,
                     {.what = barrier{},
                      .epoch = now.epoch,
                      .deadline = 300ms,
                      .lane = lane::named("simulated probe " + std::to_string(attempt))},
                     make_reply_promise([counted](const outcome& result) {
                       --counted->open;
                       if (failure_of(result) == nullptr) ++counted->done;
                     }));
    });
  }
  for (worker& one : clients) one.detach();
  threads.run([&] { return counted->open == 0; }, virtual_now() + longest_answer(of));
  return counted->done == now.origins.size();
}

/// Checks that a world that has not ended serves again, once no more faults occur (TIM-1, FLT-1).
void await_progress(const scenario& of, system_under_test& where, simulation_ledger& ledger, trace& log) {
  fibers& threads = *fibers::current();
  log.note("all requests are answered");
  const time_point latest = virtual_now() + longest(of);
  for (std::size_t attempt = 1; virtual_now() < latest && !where.has_ended(); ++attempt) {
    threads.run([&] { return where.has_ended() || where.latest().phase == world_phase::ready; }, latest);
    if (is_served(of, where, attempt)) {
      log.note("the world serves");
      threads.sleep(longer_than_a_lease);
      if (where.latest().phase == world_phase::ready) where.judge_memory();
      return;
    }
    threads.sleep(1ms);
  }
  if (!where.has_ended())
    ledger.stuck("the world does not serve, although all faults have passed: it is " + describe(where.latest()));
}

} // namespace

void play_out(const scenario& of, simulated_deployment& deployment, system_under_test& where, simulation_ledger& ledger,
              trace& log) {
  fibers& threads = *fibers::current();
  threads.run([&] { return deployment.all_asked(); }, virtual_now() + of.length + longest(of));
  if (!of.stops_busy) {
    threads.run([&] { return ledger.unanswered() == 0; }, virtual_now() + longest_answer(of));
    if (const std::size_t late = ledger.unanswered(); late > 0)
      ledger.stuck(std::to_string(late) + " requests were not answered in time");
  }
  if (of.processes && !of.stops_busy) await_progress(of, where, ledger, log);
  log.note("stop");
  where.stop();
  threads.run([&] { return where.is_over() && ledger.unanswered() == 0; }, virtual_now() + longest(of));
  if (!where.is_over()) ledger.stuck("the world has not ended: it is " + describe(where.latest()));
}

namespace {

using namespace std::chrono_literals;

/// The time between checks for an answer.
constexpr nanoseconds between_looks = 500us;

lane lane_of_plan(std::size_t lane) {
  return lane::named("simulated replays " + std::to_string(lane));
}

std::string name_of_plan(std::size_t capture) {
  return "plan " + std::to_string(capture);
}

} // namespace

template <class Reply>
std::shared_ptr<value_promise<Reply>> simulated_deployment::expect(const planned_request& what,
                                                                   std::optional<rank> self, epoch now,
                                                                   std::function<void(Reply&)> keep) {
  const auto reply = std::make_shared<reply_promise>(ledger_.expect(what, self, now));
  return std::make_shared<value_promise<Reply>>(
      [reply, now, keep = std::move(keep)](std::variant<Reply, error> result) {
        if (auto* const failure = std::get_if<error>(&result)) return reply->deliver(std::move(*failure));
        keep(std::get<Reply>(result));
        reply->deliver(completion{.ticket = {}, .epoch = now, .times = {}});
      });
}

void simulated_deployment::wait_for(const planned_request& what) const {
  const time_point latest = virtual_now() + longest(of_);
  while (!ledger_.is_answered(what) && virtual_now() < latest) fibers::current()->sleep(between_looks);
}

bool simulated_deployment::has_committed(const planned_request& what, rank self) const {
  const time_point latest = virtual_now() + longest(of_);
  while (!ledger_.is_answered(what, self) && virtual_now() < latest) fibers::current()->sleep(between_looks);
  return ledger_.has_succeeded(what, self);
}

void simulated_deployment::ask_registration(const planned_request& one) {
  wait_for_time_of(one);
  const world_event now = where_.latest();
  memory_.ask_among(one, ranks_in(now), now.epoch);
  where_.register_memory(
      {.size_bytes = memory_.registered_bytes(), .epoch = now.epoch},
      expect<registration_reply>(one, std::nullopt, now.epoch,
                                 [memory = &memory_, number = one.number](registration_reply& reply) {
                                   memory->open_registered(number, std::move(reply.pool));
                                 }));
}

void simulated_deployment::ask_credit(const planned_credit& one) {
  wait_until(began_ + one.at);
  const std::uint64_t process = where_.process_of(one.where);
  const epoch asked_in = where_.latest().epoch;
  const auto is_served = [&] {
    const world_event now = where_.latest();
    return now.phase == world_phase::ready && now.epoch == asked_in && where_.process_of(one.where) == process &&
           where_.has_client(one.where, asked_in);
  };
  if (!is_served()) return;
  const std::string name = "credit " + std::to_string(one.number);
  const auto answer = std::make_shared<std::optional<std::variant<credit, error>>>();
  where_.ask_credit(one.where, {.operations = one.operations, .epoch = asked_in, .deadline = one.deadline},
                    std::make_shared<credit_answer>([answer, name, to = &ledger_](std::variant<credit, error> given) {
                      if (*answer) to->doubled(name);
                      *answer = std::move(given);
                    }));
  const time_point latest = virtual_now() + longest(of_);
  while (!*answer && virtual_now() < latest && where_.process_of(one.where) == process)
    fibers::current()->sleep(between_looks);
  if (!*answer) {
    if (virtual_now() >= latest) ledger_.stuck(name + " was not answered in time");
    return;
  }
  if (const auto* const refusal = std::get_if<error>(&**answer)) {
    const std::string why = to_string(*refusal);
    if (refusal->code == errc::deadline_exceeded) return;
    fibers::current()->sleep(20ms); // clients learn of the end of an epoch after the refusals
    if (is_served()) ledger_.wrong(name + " was refused by a world that serves: " + why);
    return;
  }
  fibers::current()->sleep(one.span);
  answer->reset();
}

void simulated_deployment::use_sub_world(const planned_split& one) {
  wait_until(began_ + one.at);
  const auto held = std::make_shared<sub_world_of_processes>();
  held->parts.resize(static_cast<std::size_t>(of_.ranks));
  bool has_stopped = false;
  for (const planned_request& asked : of_.requests) {
    if (asked.split != one.number) continue;
    if (one.stops_at && asked.at > *one.stops_at && !std::exchange(has_stopped, true)) {
      wait_until(began_ + *one.stops_at);
      stop_members(one, *held);
    }
    wait_for_time_of(asked);
    const world_event now = where_.latest();
    if (now.phase != world_phase::ready) continue;
    renew(one, now, *held);
    if (held->members.empty() || !split_where_missing(one, now, held)) continue;
    ask_members(asked, now, *held);
  }
}

void simulated_deployment::renew(const planned_split& one, const world_event& now, sub_world_of_processes& held) {
  const std::vector<rank> ranks = ranks_in(now);
  std::vector<rank> members;
  std::ranges::copy_if(one.members, std::back_inserter(members),
                       [&](rank member) { return std::ranges::find(ranks, member) != ranks.end(); });
  const auto is_there = [](const auto& part) {
    const auto world = part.world.lock();
    return part.is_pending || (world && !world->is_over());
  };
  const auto is_kept = [&](rank member) { // by a process that has not noticed a change of the world's size
    const auto& part = held.parts[static_cast<std::size_t>(member.value())];
    const auto world = part.world.lock();
    return part.process == where_.process_of(member) && is_there(part) &&
           (!world || world->latest().phase != world_phase::failed);
  };
  const std::size_t size_changes = where_.size_changes(now.epoch);
  // A change of the world's size ends the sub-world, even if the world has its old size again. The order has dropped
  // its resume points then, and if all its processes have been replaced meanwhile, nobody knows that there was one.
  const bool has_failed = held.size_of_whole != now.world_size ||
                          (held.size_changes != size_changes && std::ranges::none_of(held.members, is_kept));
  const bool is_over = held.stopped_in != epoch{} && std::ranges::none_of(held.parts, is_there);
  if (!is_over && !has_failed && held.members == members) return;
  // All members have stopped their parts while these served in one epoch, so the order has forgotten the sub-world. It
  // keeps one that a process has stopped in a rebuild, or that a newcomer was to join: the newcomer's split joins it.
  const bool is_anew = is_over && held.stopped_in == now.epoch && held.members == members &&
                       std::ranges::all_of(members, [&](rank member) {
                         return held.parts[static_cast<std::size_t>(member.value())].is_stopped;
                       });
  held = {.number = ++last_sub_world_,
          .members = std::move(members),
          .size_of_whole = now.world_size,
          .size_changes = size_changes};
  held.parts.resize(static_cast<std::size_t>(of_.ranks));
  if (is_anew) ledger_.begins_anew(held.number);
}

bool simulated_deployment::split_where_missing(const planned_split& one, const world_event& now,
                                               const std::shared_ptr<sub_world_of_processes>& held) {
  const std::vector<rank> ranks = ranks_in(now);
  rank_group group{.name = "split " + std::to_string(one.number), .members = {}};
  for (const rank member : held->members)
    group.members.emplace_back(static_cast<int>(std::ranges::find(ranks, member) - ranks.begin()));
  for (const rank self : ranks) {
    auto& part = held->parts[static_cast<std::size_t>(self.value())];
    const std::uint64_t process = where_.process_of(self);
    if (part.process == process || !where_.has_client(self, now.epoch)) continue;
    part = {.process = process, .is_pending = true};
    const auto answered = [this, held, number = held->number, self,
                           process](const std::shared_ptr<simulated_world>& made, const error& why) {
      auto& answering = held->parts[static_cast<std::size_t>(self.value())];
      if (held->number != number || answering.process != process) return;
      answering.is_pending = false;
      if (why) answering.process = 0; // its client asks again
      if (!made) return;
      answering.world = made;
      const auto note = [this, members = held->members, number, process](const world_event& event) {
        note_resume_points(of_, event, process, ledger_, number, where_.order_moves(members, event.epoch));
      };
      note(made->latest());
      made->listen(note);
    };
    const auto late = nanoseconds{static_cast<nanoseconds::rep>(
                          mix(of_.seed, held->number, static_cast<std::uint64_t>(self.value())) >> 16U)} %
                      one.jitter;
    begin([this, self, late, answered, asked = split_request{{group}, now.epoch}] {
      fibers::current()->sleep(late);
      where_.split(self, asked, answered);
    });
  }
  const auto is_served = [&](rank member) {
    const auto& part = held->parts[static_cast<std::size_t>(member.value())];
    const auto world = part.world.lock();
    if (!world || part.process != where_.process_of(member)) return false;
    const world_event event = world->latest();
    return event.phase == world_phase::ready && event.epoch == now.epoch;
  };
  const auto is_current = [&] {
    const world_event latest = where_.latest();
    return latest.phase == world_phase::ready && latest.epoch == now.epoch;
  };
  const time_point latest = virtual_now() + 100ms;
  while (is_current() && virtual_now() < latest) {
    if (std::ranges::all_of(held->members, is_served)) return true;
    fibers::current()->sleep(between_looks);
  }
  return false;
}

void simulated_deployment::ask_members(const planned_request& one, const world_event& now,
                                       sub_world_of_processes& held) {
  memory_.ask_among(one, held.members, now.epoch);
  ledger_.goes_to(one, held.number);
  std::vector<rank> asked;
  for (const rank self : held.members) {
    const auto drawn = mix(of_.seed, one.number, static_cast<std::uint64_t>(self.value()));
    if (drawn % 3 == 0) fibers::current()->sleep(nanoseconds{static_cast<nanoseconds::rep>(drawn >> 16U)} % one.jitter);
    auto& part = held.parts[static_cast<std::size_t>(self.value())];
    if (one.silent == self) part.silent_until = std::max(part.silent_until, now.epoch);
    const auto world = part.world.lock();
    if (!world || part.process != where_.process_of(self) || part.silent_until >= now.epoch) continue;
    if (!memory_.takes_part(one, self)) continue;
    where_.ask_sub_world(self, *world, *one.lane,
                         {.what = memory_.part_of(one, self, one.disagreeing == self),
                          .epoch = now.epoch,
                          .deadline = one.deadline,
                          .lane = name_of(*one.lane)},
                         ledger_.expect(one, self, now.epoch));
    asked.push_back(self);
  }
  for (const rank self : asked) {
    auto& part = held.parts[static_cast<std::size_t>(self.value())];
    // As in ask_in().
    if (ledger_.was_busy(one, self) || (one.commit && !has_committed(one, self)))
      part.silent_until = std::max(part.silent_until, now.epoch);
  }
}

void simulated_deployment::stop_members(const planned_split& one, sub_world_of_processes& held) {
  held.stopped_in = where_.latest().epoch;
  for (const rank self : held.members) {
    const auto drawn = mix(of_.seed, 32 + one.number, static_cast<std::uint64_t>(self.value()));
    fibers::current()->sleep(nanoseconds{static_cast<nanoseconds::rep>(drawn >> 16U)} % one.jitter);
    auto& part = held.parts[static_cast<std::size_t>(self.value())];
    const auto world = part.world.lock();
    if (!world || part.process != where_.process_of(self)) continue;
    const world_event event = world->latest();
    part.is_stopped = event.phase == world_phase::ready && event.epoch == held.stopped_in;
    where_.stop_sub_world(self, *world);
  }
}

void simulated_deployment::ask_capture(const planned_request& one) {
  if (of_.processes) return ask_captures(one);
  wait_for_time_of(one);
  const world_event now = where_.latest();
  const std::vector<rank> ranks = ranks_in(now);
  memory_.ask_among(one, ranks, now.epoch);
  capture_request asked{.options = {.deadline = one.deadline}, .epoch = now.epoch};
  if (one.of_requests)
    asked.steps = memory_.steps_of(one, ranks);
  else
    asked.function = memory_.function_of(one);
  const auto plan = std::make_shared<std::shared_ptr<captured_plan>>();
  where_.capture(rank{0}, std::move(asked),
                 expect<capture_reply>(one, std::nullopt, now.epoch,
                                       [plan](capture_reply& reply) { *plan = std::move(reply.plan); }));
  wait_for(one);
  epoch unsettled{0}; // an epoch with requests that may still run
  for (const planned_request& again : of_.requests) {
    if (again.what != operation_kind::replay || again.source != one.number || !*plan) continue;
    wait_for_time_of(again);
    if (virtual_now() - began_ > of_.length + 500ms) return;
    const bool may_be_written = one.of_requests ? unsettled != epoch{0} : unsettled == where_.latest().epoch;
    if (may_be_written) continue;
    ask_replay(again, again.gives_back ? std::exchange(*plan, nullptr) : *plan);
    wait_for(again);
    if (!ledger_.is_answered(again)) return;
    memory_.settle(again);
    if (ledger_.may_still_run(again)) unsettled = where_.latest().epoch;
  }
}

void simulated_deployment::ask_captures(const planned_request& one) {
  wait_for_time_of(one);
  const auto held = std::make_shared<plan_of_processes>();
  held->parts.resize(static_cast<std::size_t>(of_.ranks));
  if (where_.latest().phase != world_phase::ready) return;
  ask_missing_captures(one, where_.latest(), held);
  epoch unsettled{0}; // an epoch with requests that may still run
  for (const planned_request& again : of_.requests) {
    if (again.what != operation_kind::replay || again.source != one.number) continue;
    wait_for_time_of(again);
    if (virtual_now() - began_ > of_.length + 500ms) return;
    const world_event now = where_.latest();
    if (now.phase != world_phase::ready) continue;
    ask_missing_captures(one, now, held);
    if (where_.latest().epoch != now.epoch || where_.latest().phase != world_phase::ready) continue;
    const bool may_be_written = one.of_requests ? unsettled != epoch{0} : unsettled == now.epoch;
    if (may_be_written) continue;
    ask_replays(again, one, now, *held);
    wait_for(again);
    if (!ledger_.is_answered(again)) return;
    memory_.settle(again);
    if (ledger_.may_still_run(again)) unsettled = now.epoch;
  }
}

void simulated_deployment::ask_missing_captures(const planned_request& one, const world_event& now,
                                                const std::shared_ptr<plan_of_processes>& held) {
  for (const rank self : ranks_in(now)) {
    const auto place = static_cast<std::size_t>(self.value());
    const std::uint64_t process = where_.process_of(self);
    if (held->parts[place].process == process || !where_.has_client(self, now.epoch) || one.silent == self) continue;
    held->parts[place] = {.process = process};
    capture_request asked{.options = {.deadline = one.deadline, .name = name_of_plan(one.number)}, .epoch = now.epoch};
    try {
      if (one.of_requests)
        asked.steps = memory_.steps_of(one, {self});
      else
        asked.function = memory_.function_of(one);
    } catch (const exception&) { // earlier processes of this place have used all memory of the plan
      continue;
    }
    auto reply = expect<capture_reply>(one, self, now.epoch, [held, place, process](capture_reply& made) {
      if (held->parts[place].process == process) held->parts[place].plan = std::move(made.plan);
    });
    const auto drawn = mix(of_.seed, one.number, static_cast<std::uint64_t>(self.value()));
    const nanoseconds late =
        one.jitter == 0ns ? 0ns : nanoseconds{static_cast<nanoseconds::rep>(drawn >> 16U)} % one.jitter;
    begin([this, self, late, asked = std::move(asked), reply = std::move(reply)] {
      if (late > 0ns) fibers::current()->sleep(late);
      where_.capture(self, asked, reply);
    });
  }
  wait_for(one);
}

void simulated_deployment::ask_replays(const planned_request& one, const planned_request& plan, const world_event& now,
                                       plan_of_processes& held) {
  const std::vector<rank> ranks = ranks_in(now);
  const auto is_held = [&](rank self) {
    const auto& part = held.parts[static_cast<std::size_t>(self.value())];
    return part.plan && part.process == where_.process_of(self) && where_.has_client(self, now.epoch);
  };
  if (!std::ranges::all_of(ranks, is_held)) return;
  memory_.ask_among(one, ranks, now.epoch);
  memory_.refill(one);
  if (!one.lane) { // a driver sends it, and names the plan
    world_request asked{.parts = {}, .epoch = now.epoch, .deadline = one.deadline};
    for (std::size_t i = 0; i < ranks.size(); ++i)
      asked.parts.emplace_back(replay{std::make_shared<captured_plan>(name_of_plan(plan.number))});
    where_.ask_world(std::move(asked), ledger_.expect(one, std::nullopt, now.epoch));
  } else {
    for (const rank self : ranks) {
      rank_request asked{.what = replay{held.parts[static_cast<std::size_t>(self.value())].plan},
                         .epoch = now.epoch,
                         .deadline = one.deadline,
                         .lane = lane_of_plan(*one.lane)};
      const auto reply = std::make_shared<reply_promise>(ledger_.expect(one, self, now.epoch));
      begin([this, self, lane = *one.lane, asked = std::move(asked), reply] {
        where_.ask_rank(self, lane, asked, std::move(*reply));
      });
    }
  }
  if (one.gives_back)
    for (auto& part : held.parts) part.plan = nullptr;
}

void simulated_deployment::ask_replay(const planned_request& one, const std::shared_ptr<captured_plan>& plan) {
  const world_event now = where_.latest();
  const std::vector<rank> ranks = ranks_in(now);
  memory_.ask_among(one, ranks, now.epoch);
  memory_.refill(one);
  if (!one.lane) {
    world_request asked{.parts = {}, .epoch = now.epoch, .deadline = one.deadline};
    for (std::size_t i = 0; i < ranks.size(); ++i) asked.parts.emplace_back(replay{plan});
    return where_.ask_world(std::move(asked), ledger_.expect(one, std::nullopt, now.epoch));
  }
  const epoch meant_for = now.phase == world_phase::ready ? now.epoch : epoch{0};
  if (meant_for == epoch{0} && how_ == submit_policy::waits_for_ready) return;
  for (const rank self : ranks)
    where_.ask_rank(
        self, *one.lane,
        {.what = replay{plan}, .epoch = meant_for, .deadline = one.deadline, .lane = lane_of_plan(*one.lane)},
        ledger_.expect(one, self, meant_for));
}

} // namespace troupe::simulation
