#include <troupe/processes/order/peer_requests.hpp>

#include <troupe/collectives/operation/lanes/lane_names.hpp>
#include <troupe/collectives/order/codec/report_codec.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/overloaded.hpp>

#include <algorithm>
#include <chrono>
#include <limits>

namespace troupe {

namespace {

enum class answer_kind : std::uint8_t { failure, handle, bytes, elsewhere };

/// Time beyond a request's deadline in which its ranks can report which of them are missing.
constexpr nanoseconds grace = std::chrono::seconds{2};
constexpr auto longest_half_span = static_cast<std::uint64_t>(std::numeric_limits<nanoseconds::rep>::max() / 2);
/// The first client number of requesting processes, which own lanes as clients. Actors' ids are smaller; the numbers of
/// rank_lane begin at 2^63.
constexpr std::size_t most_steps = 65'536;
/// Limit of the plans that one process may have captured at a rank.
constexpr std::ptrdiff_t most_plans = 1024;

std::string name_of(process_address one) {
  return one.value() >= 0 ? "the process of rank " + std::to_string(one.value())
                          : "process " + std::to_string(-one.value()) + " without a rank";
}

nanoseconds read_span(wire_reader& in) {
  nanoseconds span{};
  in.ordinal(span);
  return span;
}

/// Lists the fields of a handle for both directions.
template <class Wire, class Handle>
void handle_field(Wire& wire, Handle& one) {
  wire.ordinal(one.exporter, std::numeric_limits<int>::max());
  memory_fields(wire, one);
  wire.field(one.on_host);
}

template <class Kind>
wire_writer begin(Kind kind) {
  return wire_writer{std::string(1, static_cast<char>(kind))};
}

} // namespace

process_address attached_address(int slot, int generation) noexcept {
  return process_address{-(generation * most_attached_lanes + slot) - 1};
}

int slot_of(process_address attached) noexcept {
  return (-(attached.value() + 1)) % most_attached_lanes;
}

lane lane_of(process_address one) {
  return lane::named(one.value() >= 0 ? "the world, asked by rank " + std::to_string(one.value())
                                      : "the world, asked by driver " + std::to_string(slot_of(one)));
}

enum class peer_requests::message_kind : std::uint8_t {
  request,
  own_request,
  capture,
  reply,
  find,
  lend,
  read,
  renew,
  give_back,
  drop_plan,
  answer,
  hear_agreed,
  agreed
};

reply_promise peer_requests::reply_to_peer(process_address to, std::uint64_t number) {
  return make_reply_promise([weak = weak_from_this(), to, number](const outcome& result) {
    try {
      if (const auto self = weak.lock()) self->send_reply(to, number, result);
    } catch (...) { // out of memory: the requesting process gives up after the deadline
    }
  });
}

peer_requests::peer_requests(process_address self, int world_size, epoch formed_in,
                             std::shared_ptr<exported_memory> exported, sender send)
  : self_{self},
    world_size_{world_size},
    epoch_{formed_in},
    exported_{std::move(exported)},
    send_{std::move(send)},
    received_bytes_(static_cast<std::size_t>(world_size)) {}

peer_requests::~peer_requests() {
  close({.code = errc::abandoned, .text = "the order of the world has ended before the request was answered"});
}

void peer_requests::serve(rank_services what) {
  std::unique_lock lock{mutex_};
  if (closed_) return;
  services_ = std::make_shared<const rank_services>(std::move(what));
  while (!early_.empty()) { // messages that arrive meanwhile wait behind these
    const auto early = std::exchange(early_, {});
    lock.unlock();
    for (const auto& [from, bytes] : early) {
      if (bytes.empty()) {
        take_detached(from);
        continue;
      }
      wire_reader in{bytes};
      const bool is_capture = in.one_of(message_kind::agreed) == message_kind::capture;
      is_capture ? take_capture(from, in) : take_request(from, in);
    }
    lock.lock();
  }
  is_serving_ = true;
}

void peer_requests::hold(std::function<void()> quiet) {
  {
    const std::lock_guard lock{mutex_};
    is_holding_ = true;
    quiet_ = std::move(quiet);
  }
  tell_quiet();
}

void peer_requests::resume() {
  for (;;) {
    decltype(held_) held;
    {
      const std::lock_guard lock{mutex_};
      quiet_ = nullptr;
      if (held_.empty()) {
        is_holding_ = false;
        return;
      }
      held = std::exchange(held_, {});
      sending_ += held.size();
    }
    for (held_request& one : held) {
      one.what.deadline = std::max(nanoseconds{0}, one.what.deadline - (steady_now() - one.since));
      send(std::move(one.what));
      one_sent();
    }
  }
}

void peer_requests::hand_over(std::shared_ptr<remote_ranks> next) {
  for (;;) { // requests that come meanwhile wait behind the held ones
    decltype(held_) held;
    {
      const std::lock_guard lock{mutex_};
      quiet_ = nullptr;
      if (closed_) return;
      if (held_.empty()) {
        next_ = std::move(next);
        return;
      }
      held = std::exchange(held_, {});
    }
    for (held_request& one : held) pass_on(std::move(one), *next);
  }
}

void peer_requests::pass_on(held_request one, remote_ranks& to) {
  one.what.deadline = std::max(nanoseconds{0}, one.what.deadline - (steady_now() - one.since));
  to.ask(std::move(one.what));
}

bool peer_requests::divert(whole_request& asked) {
  std::shared_ptr<remote_ranks> next;
  {
    const std::lock_guard lock{mutex_};
    next = next_;
    if (!next && (!is_holding_ || closed_)) {
      ++sending_;
      return false;
    }
    if (!next) held_.push_back({std::move(asked), steady_now()});
  }
  if (next) next->ask(std::move(asked));
  return true;
}

void peer_requests::one_sent() {
  {
    const std::lock_guard lock{mutex_};
    --sending_;
  }
  tell_quiet();
}

void peer_requests::tell_quiet() {
  std::function<void()> quiet;
  {
    const std::lock_guard lock{mutex_};
    // The answers to questions are not waited for: they change nothing, and are asked for again.
    if (!quiet_ || sending_ > 0 ||
        !std::ranges::all_of(asked_, [](const auto& one) { return one.second->is_question(); }))
      return;
    quiet = std::exchange(quiet_, nullptr);
  }
  quiet();
}

void peer_requests::ask(whole_request asked) {
  if (divert(asked)) return;
  send(std::move(asked));
  one_sent();
}

void peer_requests::send(whole_request asked) {
  std::optional<operation> own;
  error why;
  if (asked.parts.size() != static_cast<std::size_t>(world_size_))
    why = {.code = errc::invalid_argument,
           .text = "the request has " + std::to_string(asked.parts.size()) + " parts, the world has " +
                   std::to_string(world_size_) + " ranks: give one part for each rank"};
  // Peers may receive the value of an agree after this process has ended it by its own clock.
  const bool until_epoch_ends =
      std::ranges::any_of(asked.parts, [](const operation& part) { return std::holds_alternative<agree>(part); });
  std::vector<wire_writer> all;
  const std::uint64_t number = begin_all(message_kind::request, asked.deadline, all);
  for (int r = 0; r < world_size_ && !why; ++r) {
    operation& part = asked.parts[static_cast<std::size_t>(r)];
    if (r == self_.value())
      own = std::move(part);
    else
      why = write_part(all[static_cast<std::size_t>(r)], part, rank{r});
  }
  ask_all(number, std::move(all), {.own = std::move(own), .until_epoch_ends = until_epoch_ends}, asked.name,
          asked.deadline, std::move(asked.reply), std::move(why));
}

std::uint64_t peer_requests::begin_all(message_kind kind, nanoseconds deadline, std::vector<wire_writer>& to) {
  constexpr std::size_t usual_bytes = 128;
  const std::uint64_t number = ++last_;
  to.reserve(static_cast<std::size_t>(world_size_));
  for (int r = 0; r < world_size_; ++r) {
    wire_writer& out = to.emplace_back();
    out.reserve(usual_bytes);
    out.u8(static_cast<std::uint8_t>(r == self_.value() ? message_kind::own_request : kind));
    out.varint(number);
    out.ordinal(deadline);
  }
  return number;
}

void peer_requests::capture(whole_capture asked) {
  error why;
  std::vector<wire_writer> all;
  const std::uint64_t number = begin_all(message_kind::capture, asked.deadline, all);
  if (self_.value() >= 0)
    why = {.code = errc::invalid_argument,
           .text = "the process of a rank captures its own part of a plan: use world::capture()"};
  for (int r = 0; r < world_size_ && !why; ++r) {
    wire_writer& out = all[static_cast<std::size_t>(r)];
    out.bytes(std::string_view{asked.plan}.substr(0, longest_plan_name_bytes + 1)); // the rank refuses a longer one
    out.varint(asked.holder);
    out.ordinal(asked.lease);
    out.varint(asked.steps.size());
    for (std::size_t k = 0; k < asked.steps.size() && !why; ++k) {
      if (asked.steps[k].size() != static_cast<std::size_t>(world_size_))
        why = {.code = errc::invalid_argument,
               .text = "it has " + std::to_string(asked.steps[k].size()) + " parts, the world has " +
                       std::to_string(world_size_) + " ranks: give one part for each rank"};
      else
        why = write_part(out, asked.steps[k][static_cast<std::size_t>(r)], rank{r});
      if (why) why.text = "step " + std::to_string(k) + " of the plan: " + why.text;
    }
  }
  ask_all(number, std::move(all), {}, asked.name, asked.deadline, std::move(asked.reply), std::move(why));
}

void peer_requests::ask_all(std::uint64_t number, std::vector<wire_writer> bodies, asked_request one, ticket name,
                            nanoseconds deadline, reply_promise reply, error why) {
  if (why) {
    why.ticket = name;
    return reply.deliver(std::move(why));
  }
  one.replies = divide_promise(std::move(reply), name, bodies.size());
  if (!expect_answers(number, std::move(one), deadline)) return;
  messages all;
  all.reserve(bodies.size());
  for (int r = 0; r < world_size_; ++r)
    all.emplace_back(process_address{r}, bodies[static_cast<std::size_t>(r)].take());
  send_(std::move(all));
}

bool peer_requests::expect_answers(std::uint64_t number, asked_request one, nanoseconds deadline) {
  error why;
  {
    const std::lock_guard lock{mutex_};
    why = closed_;
    if (!why) {
      one.queued = steady_now();
      if (!one.until_epoch_ends) one.give_up = later(later(one.queued, deadline), grace);
      due_ = std::min(due_, one.give_up);
      asked_.emplace(number, std::make_shared<asked_request>(std::move(one)));
      return true;
    }
  }
  why.effect = effect::rejected;
  for (reply_promise& each : one.replies) each.deliver(why);
  return false;
}

peer_requests::answered_part peer_requests::take_part(std::uint64_t number, process_address from, bool is_question,
                                                      bool is_last) {
  answered_part part;
  if (from.value() < 0 || from.value() >= world_size_) return part;
  {
    const std::lock_guard lock{mutex_};
    const auto found = asked_.find(number);
    if (found == asked_.end() || found->second->is_question() != is_question) return part; // no longer pending
    auto& replies = found->second->replies;
    part.reply = std::move(replies[static_cast<std::size_t>(from.value())]);
    part.queued = found->second->queued;
    if ((is_last && part.reply.pending()) || std::ranges::none_of(replies, &reply_promise::pending))
      part.finished = take_out(found);
  }
  if (part.finished) {
    send_waiting_reads();
    if (!is_question) tell_quiet();
  }
  return part;
}

std::shared_ptr<peer_requests::asked_request>
peer_requests::take_out(std::map<std::uint64_t, std::shared_ptr<asked_request>>::iterator place) {
  auto one = std::move(place->second);
  awaited_bytes_ -= one->read_bytes;
  asked_.erase(place);
  return one;
}

void peer_requests::receive(process_address from, std::string_view bytes) {
  if (bytes.empty() && from.value() >= 0) return lose(from);
  if (bytes.empty()) {
    if (!exported_) return; // this process has no rank
    {
      const std::lock_guard lock{mutex_};
      if (!is_serving_) {
        early_.emplace_back(from, bytes);
        return;
      }
    }
    return take_detached(from);
  }
  wire_reader in{bytes};
  const auto kind = in.one_of(message_kind::agreed);
  if (!in.ok()) return;
  switch (kind) {
    case message_kind::reply: return take_reply(from, in);
    case message_kind::answer: return take_answer(from, in);
    case message_kind::request:
    case message_kind::own_request:
    case message_kind::capture: break;
    case message_kind::renew: {
      const std::uint64_t holder = in.varint();
      if (!in.ok() || !exported_) return;
      exported_->renew(holder, steady_now());
      const std::lock_guard lock{mutex_};
      const running_time now = running_.read(steady_now());
      for (auto& [name, one] : plans_)
        if (one.holder == holder) one.ends = later(now, one.lease);
      return;
    }
    case message_kind::drop_plan: {
      std::string name{in.bytes(longest_plan_name_bytes)};
      if (in.ok()) keep_plan(from, name, {});
      return;
    }
    case message_kind::give_back: {
      const remote_buffer lent{.session = in.varint(), .id = in.varint()};
      if (in.ok() && exported_) exported_->remove(lent);
      return;
    }
    case message_kind::hear_agreed: {
      const std::lock_guard lock{mutex_};
      if (from.value() >= 0 || closed_) return;
      listeners_.insert(from);
      has_listeners_.store(true, std::memory_order_release);
      return;
    }
    case message_kind::agreed: {
      const std::string where{in.bytes(lane_names::longest_bytes)};
      agreed_value value;
      agreed_field(in, value);
      if (in.ok() && heard_) heard_(where, value);
      return;
    }
    case message_kind::read:
      if (exported_) take_read(from, in);
      return;
    case message_kind::find:
      if (exported_) take_find(from, in);
      return;
    case message_kind::lend:
      if (exported_) take_lend(from, in);
      return;
  }
  {
    const std::lock_guard lock{mutex_};
    if (!is_serving_) {
      early_.emplace_back(from, bytes);
      return;
    }
  }
  kind == message_kind::capture ? take_capture(from, in) : take_request(from, in);
}

void peer_requests::take_capture(process_address from, wire_reader& in) {
  const std::uint64_t number = in.varint();
  const auto deadline = read_span(in);
  if (!in.ok()) return; // it cannot be answered
  reply_promise reply = reply_to_peer(from, number);
  plan_options options{.streams = {}, .deadline = deadline, .name = std::string{in.bytes(longest_plan_name_bytes + 1)}};
  kept_plan kept{.holder = in.varint(), .lease = std::min(read_span(in), longest_lease)};
  std::vector<operation> steps(in.count(most_steps));
  error objection;
  std::shared_ptr<const rank_services> services;
  {
    const std::lock_guard lock{mutex_};
    services = services_;
    objection = count_request(from);
    const auto held = std::ranges::count_if(plans_, [&](const auto& one) { return one.first.first == from; });
    if (held >= most_plans && !plans_.contains({from, options.name}) && !objection)
      objection = {.code = errc::busy,
                   .text = name_of(from) + " has captured " + std::to_string(most_plans) + " plans: drop some first"};
  }
  if (!services) return; // the epoch has ended
  const rank self{self_.value()};
  for (std::size_t k = 0; k < steps.size() && in.ok(); ++k) {
    if (auto part = read_part(in, self)) steps[k] = std::move(*part);
    if (objection) continue;
    objection = resolve_part(steps[k], services->here, self);
    if (objection) objection.text = "step " + std::to_string(k) + " of the plan: " + objection.text;
  }
  if (const error failure = in.failure("a capture of " + name_of(from))) objection = failure;
  const auto waiting = std::make_shared<reply_promise>(std::move(reply));
  services->capture(
      std::move(steps), std::move(options), std::move(objection),
      [weak = weak_from_this(), from, kept, waiting, self](std::shared_ptr<captured_plan> plan, error why) {
        if (why) {
          if (!why.rank) why.rank = self;
          return waiting->deliver(std::move(why));
        }
        kept_plan one = kept;
        const std::string name = plan->options().name;
        one.plan = std::move(plan);
        if (const auto by = weak.lock()) by->keep_plan(from, name, std::move(one));
        waiting->deliver(completion{});
      });
}

error peer_requests::count_request(process_address of) {
  if (++served_[of] <= most_pending_of_peer) return {};
  return {.code = errc::busy,
          .text = name_of(of) + " has " + std::to_string(most_pending_of_peer) + " requests pending at rank " +
                  to_string(rank{self_.value()}) + ": ask again when one of them has been answered"};
}

void peer_requests::keep_plan(process_address of, const std::string& name, kept_plan one) {
  std::shared_ptr<captured_plan> dropped; // destroyed without the lock
  const std::lock_guard lock{mutex_};
  one.ends = later(running_.read(steady_now()), one.lease);
  kept_plan& place = plans_[{of, name}];
  dropped = std::exchange(place, closed_ ? kept_plan{} : std::move(one)).plan;
  if (!place.plan) plans_.erase({of, name});
  take_name(dropped);
}

void peer_requests::take_name(const std::shared_ptr<captured_plan>& plan) {
  if (plan && services_ && services_->here.plans) services_->here.plans->remove(plan);
}

void peer_requests::hear_agreed(agreed_listener heard) {
  heard_ = std::move(heard);
  send_({{process_address{0}, begin(message_kind::hear_agreed).take()}});
}

void peer_requests::tell_agreed(lane where, const agreed_value& value) {
  if (!has_listeners_.load(std::memory_order_acquire)) return;
  wire_writer out = begin(message_kind::agreed);
  out.bytes(where.name());
  agreed_field(out, value);
  messages all;
  {
    const std::lock_guard lock{mutex_};
    for (const process_address one : listeners_) all.emplace_back(one, out.view());
  }
  send_(std::move(all));
}

void peer_requests::send_to_all(std::string_view message) {
  messages all;
  for (int r = 0; r < world_size_; ++r) all.emplace_back(process_address{r}, message);
  send_(std::move(all));
}

void peer_requests::drop_plan(std::string_view name) {
  wire_writer out = begin(message_kind::drop_plan);
  out.bytes(name.substr(0, longest_plan_name_bytes));
  send_to_all(out.view());
}

void peer_requests::take_request(process_address from, wire_reader& in) {
  const std::uint64_t number = in.varint();
  const auto deadline = read_span(in);
  if (!in.ok()) return; // it cannot be answered
  reply_promise reply = reply_to_peer(from, number);
  rank_request asked{.what = barrier{}, .epoch = epoch_, .deadline = deadline, .site = call_site{}};
  error objection, no_lane;
  std::shared_ptr<const rank_services> services;
  bool is_known = false;
  {
    const std::lock_guard lock{mutex_};
    services = services_;
    objection = count_request(from);
    try {
      auto at = lanes_.find(from);
      if (at == lanes_.end()) at = lanes_.emplace(from, lane_of(from)).first;
      asked.lane = at->second;
    } catch (const exception& failure) { // this process can name no more lanes
      no_lane = failure.why();
    }
    if (from == self_) {
      if (const auto found = asked_.find(number); found != asked_.end() && found->second->own) {
        asked.what = *std::exchange(found->second->own, std::nullopt);
        is_known = true;
      }
    }
  }
  if (!services) return; // the epoch has ended
  if (no_lane) return reply.deliver(std::move(no_lane));
  const rank self{self_.value()};
  if (!is_known) {
    if (auto part = read_part(in, self)) asked.what = std::move(*part);
    if (!in.ok() && !objection) objection = in.failure("a request of " + name_of(from));
  }
  error missing = resolve_part(asked.what, services->here, self);
  if (!objection) objection = std::move(missing);
  if (objection && !objection.rank) objection.rank = self;
  services->ask(std::move(asked), std::move(objection), std::move(reply),
                first_peer_client + static_cast<std::uint64_t>(static_cast<std::uint32_t>(from.value())));
}

void peer_requests::send_reply(process_address to, std::uint64_t number, const outcome& result) {
  wire_writer out = begin(message_kind::reply);
  out.varint(number);
  const error* const failure = failure_of(result);
  out.flag(failure == nullptr);
  if (failure != nullptr) {
    write_error(out, *failure);
  } else {
    const times& at = std::get<completion>(result).times;
    const auto span = [&](time_point until) {
      out.varint(static_cast<std::uint64_t>(std::max<nanoseconds::rep>(0, (until - at.queued).count())));
    };
    span(at.launched);
    span(at.done);
    // The value of an agree is the same at all ranks, so one of them sends it: else a process that has many requests
    // pending would get more than may wait for it.
    const auto& agreed = std::get<completion>(result).agreed;
    const bool tells = agreed && self_ == process_address{0};
    out.flag(tells);
    if (tells) agreed_field(out, *agreed);
  }
  {
    const std::lock_guard lock{mutex_};
    if (const auto found = served_.find(to); found != served_.end() && --found->second == 0) served_.erase(found);
  }
  messages one;
  one.emplace_back(to, out.take());
  send_(std::move(one));
}

void peer_requests::take_reply(process_address from, wire_reader& in) {
  const std::uint64_t number = in.varint();
  const bool has_succeeded = in.flag();
  error failure;
  nanoseconds launched{}, done{};
  std::shared_ptr<agreed_value> agreed;
  if (has_succeeded) {
    launched = nanoseconds{static_cast<nanoseconds::rep>(in.varint(longest_half_span))};
    done = nanoseconds{static_cast<nanoseconds::rep>(in.varint(longest_half_span))};
    if (in.flag()) {
      agreed = std::make_shared<agreed_value>();
      agreed_field(in, *agreed);
    }
  } else {
    failure = read_error(in);
  }
  if (!in.ok()) return;
  auto [reply, queued, finished] = take_part(number, from, false);
  if (failure)
    reply.deliver(std::move(failure));
  else // the processes may have different clocks
    reply.deliver(completion{.ticket = {},
                             .epoch = epoch_,
                             .times = {.queued = queued, .launched = queued + launched, .done = queued + done},
                             .agreed = std::move(agreed)});
}

error peer_requests::another_kind() {
  return {.code = errc::internal, .text = "a rank's process has sent an answer of another kind"};
}

template <class Value, class Write>
void peer_requests::ask_question(message_kind kind, std::optional<rank> target, nanoseconds deadline,
                                 std::shared_ptr<value_promise<Value>> reply, Write write, error nowhere,
                                 std::size_t read_bytes) {
  if (target && (target->value() < 0 || target->value() >= world_size_))
    return reply->deliver(error{.code = errc::invalid_argument,
                                .text = "rank " + to_string(*target) + " is not in this world: its ranks are 0 to " +
                                        std::to_string(world_size_ - 1)});
  const std::uint64_t number = ++last_;
  messages all;
  for (int r = target ? target->value() : 0; r < (target ? target->value() + 1 : world_size_); ++r) {
    wire_writer out = begin(kind);
    out.varint(number);
    write(out, rank{r});
    all.emplace_back(process_address{r}, out.take());
  }
  // Delivers a failure of the question. take_answer() delivers the answer.
  reply_promise failed = make_reply_promise([reply, nowhere = std::move(nowhere)](const outcome& result) {
    const error* const failure = failure_of(result);
    error why = failure != nullptr ? *failure : nowhere;
    why.effect = effect::rejected; // a question writes no memory of this process
    reply->deliver(std::move(why));
  });
  divided_reply replies;
  if (target) {
    replies.resize(static_cast<std::size_t>(world_size_));
    replies[static_cast<std::size_t>(target->value())] = std::move(failed);
  } else {
    replies = divide_promise(std::move(failed), {}, static_cast<std::size_t>(world_size_));
  }
  if (expect_answers(number, {.replies = std::move(replies), .answer = std::move(reply), .read_bytes = read_bytes},
                     deadline))
    send_(std::move(all));
}

void peer_requests::find(rank target, std::string_view name, nanoseconds deadline, handle_promise reply) {
  ask_question(message_kind::find, target, deadline, std::move(reply),
               [&](wire_writer& out, rank) { out.bytes(name.substr(0, longest_export_name_bytes)); });
}

void peer_requests::lend(rank target, lent_kind what, std::size_t size_bytes, std::uint64_t holder, nanoseconds lease,
                         nanoseconds deadline, handle_promise reply) {
  ask_question(message_kind::lend, target, deadline, std::move(reply), [&](wire_writer& out, rank) {
    out.field(what);
    out.varint(size_bytes);
    out.varint(holder);
    out.ordinal(lease);
  });
}

void peer_requests::read(const remote_buffer& from, nanoseconds deadline, bytes_promise reply) {
  if (!from.on_host || from.size_bytes > most_read_bytes)
    return reply->deliver(
        error{.code = errc::invalid_argument,
              .text = from.on_host ? "a read of " + std::to_string(from.size_bytes) + " bytes exceeds the limit of " +
                                         std::to_string(most_read_bytes) + ": read it in parts"
                                   : "only host memory can be read: let the rank copy it to host memory first (copy)"});
  waiting_read one{from, later(steady_now(), deadline), std::move(reply)};
  {
    const std::lock_guard lock{mutex_};
    const bool has_room =
        awaited_bytes_ == 0 || (waiting_reads_.empty() && awaited_bytes_ + from.size_bytes <= most_awaited_bytes);
    if (!closed_ && !has_room) {
      due_ = std::min(due_, one.give_up);
      waiting_reads_.push_back(std::move(one));
      return;
    }
    awaited_bytes_ += from.size_bytes;
  }
  send_read(std::move(one));
}

void peer_requests::send_read(waiting_read one) {
  const remote_buffer from = one.from;
  ask_question(
      message_kind::read, std::nullopt, std::max(one.give_up - steady_now(), nanoseconds{0}), std::move(one.reply),
      [&](wire_writer& out, rank to) {
        handle_field(out, from);
        const std::lock_guard lock{mutex_};
        out.varint(received_bytes_[static_cast<std::size_t>(to.value())]);
      },
      {.code = errc::stale_buffer,
       .text = "the process that exported the memory as rank " + to_string(from.exporter) +
               " has left the world: ask a rank of the present world for a new handle"},
      from.size_bytes);
}

void peer_requests::send_waiting_reads() {
  for (;;) {
    std::unique_lock lock{mutex_};
    if (waiting_reads_.empty()) return;
    waiting_read& first = waiting_reads_.front();
    if (awaited_bytes_ > 0 && awaited_bytes_ + first.from.size_bytes > most_awaited_bytes) return;
    waiting_read next = std::move(first);
    waiting_reads_.pop_front();
    awaited_bytes_ += next.from.size_bytes;
    lock.unlock();
    send_read(std::move(next));
  }
}

void peer_requests::take_read(process_address from, wire_reader& in) {
  const std::uint64_t number = in.varint();
  remote_buffer wanted;
  handle_field(in, wanted);
  const std::uint64_t received_bytes = in.varint();
  if (!in.ok()) return;
  if (!exported_->has_exported(wanted)) return answer(from, number, std::monostate{});
  error why;
  const buffer memory = exported_->find(wanted, rank{self_.value()}, why);
  if (!why && (!memory.on_host() || memory.size_bytes() > most_read_bytes))
    why = {.code = errc::invalid_argument,
           .text = "only host memory can be read, at most " + std::to_string(most_read_bytes) + " bytes at once"};
  if (!why) {
    const std::lock_guard lock{mutex_};
    read_answers& of = read_answers_[from];
    of.received_bytes = std::clamp(received_bytes, of.received_bytes, of.sent_bytes);
    if (of.sent_bytes - of.received_bytes + memory.size_bytes() > most_unreceived_bytes)
      why = {.code = errc::busy,
             .text = std::to_string(of.sent_bytes - of.received_bytes) + " bytes that " + name_of(from) +
                     " has asked to read have not reached it, and the limit is " +
                     std::to_string(most_unreceived_bytes) + ": read again when they have"};
    else
      of.sent_bytes += memory.size_bytes();
  }
  if (why) return answer(from, number, why);
  answer(from, number, std::string_view{reinterpret_cast<const char*>(memory.data()), memory.size_bytes()});
}

void peer_requests::renew(std::uint64_t holder) {
  wire_writer out = begin(message_kind::renew);
  out.varint(holder);
  send_to_all(out.view());
}

void peer_requests::give_back(const remote_buffer& lent) {
  wire_writer out = begin(message_kind::give_back);
  out.varint(lent.session);
  out.varint(lent.id);
  send_to_all(out.view()); // because the exporter may have another rank now
}

void peer_requests::take_find(process_address from, wire_reader& in) {
  const std::uint64_t number = in.varint();
  const std::string name{in.bytes(longest_export_name_bytes)};
  if (!in.ok()) return;
  try {
    answer(from, number, exported_->find(name, rank{self_.value()}, true));
  } catch (const exception& failure) {
    answer(from, number, failure.why());
  }
}

void peer_requests::take_lend(process_address from, wire_reader& in) {
  asked_lend one{.from = from, .number = in.varint()};
  one.what = in.one_of(lent_kind::flight_record);
  one.size_bytes = in.varint();
  one.holder = in.varint();
  one.lease = std::min(read_span(in), longest_lease);
  if (!in.ok()) return;
  error why;
  {
    const std::lock_guard lock{mutex_};
    const auto waiting = std::ranges::count(waiting_lends_, from, &asked_lend::from);
    if (!services_ || one.holder == 0) {
      why = {.code = errc::rebuilding, .text = "the rank's process is not ready yet: ask again"};
    } else if (lends_ >= most_lends && static_cast<std::size_t>(waiting) >= most_waiting_lends) {
      why = {.code = errc::busy,
             .text = std::to_string(waiting) + " requests of " + name_of(from) +
                     " for memory or reports wait at this rank, which is the limit: ask again when one has been "
                     "answered"};
    } else if (lends_ >= most_lends) {
      waiting_lends_.push_back(one);
      return;
    } else {
      ++lends_;
    }
  }
  if (!why) return begin_lend(one);
  why.rank = rank{self_.value()};
  answer(from, one.number, why);
}

void peer_requests::begin_lend(const asked_lend& one) {
  std::shared_ptr<const rank_services> services;
  {
    const std::lock_guard lock{mutex_};
    services = services_;
  }
  if (!services) return; // the epoch has ended
  try {
    services->lend(one.what, one.size_bytes, [weak = weak_from_this(), one](buffer memory, error why) {
      if (const auto self = weak.lock()) self->end_lend(one, std::move(memory), std::move(why));
    });
  } catch (...) { // no thread
    end_lend(one, {}, current_error());
  }
}

void peer_requests::end_lend(const asked_lend& one, buffer memory, error why) {
  const rank self{self_.value()};
  remote_buffer handle;
  try {
    if (!why) handle = exported_->lend(self, std::move(memory), one.holder, one.lease, steady_now());
  } catch (const exception& failure) {
    why = failure.why();
  }
  if (why && !why.rank) why.rank = self;
  why ? answer(one.from, one.number, why) : answer(one.from, one.number, handle);
  std::unique_lock lock{mutex_};
  if (waiting_lends_.empty()) {
    --lends_;
    return;
  }
  const asked_lend next = waiting_lends_.front();
  waiting_lends_.pop_front();
  lock.unlock();
  begin_lend(next);
}

void peer_requests::take_detached(process_address peer) {
  {
    const std::lock_guard lock{mutex_};
    if (!services_) return; // the epoch has ended
    lanes_.erase(peer);
    listeners_.erase(peer);
    has_listeners_.store(!listeners_.empty(), std::memory_order_release);
    read_answers_.erase(peer);
    std::erase_if(waiting_lends_, [&](const asked_lend& one) { return one.from == peer; });
  }
  messages farewell;
  farewell.emplace_back(peer, std::string{});
  send_(std::move(farewell));
}

void peer_requests::answer(process_address to, std::uint64_t number,
                           const std::variant<std::monostate, remote_buffer, std::string_view, error>& what) {
  wire_writer out = begin(message_kind::answer);
  out.varint(number);
  std::visit(overloaded{[&](std::monostate) { out.u8(static_cast<std::uint8_t>(answer_kind::elsewhere)); },
                        [&](const remote_buffer& handle) {
                          out.u8(static_cast<std::uint8_t>(answer_kind::handle));
                          handle_field(out, handle);
                        },
                        [&](std::string_view bytes) {
                          out.u8(static_cast<std::uint8_t>(answer_kind::bytes));
                          out.bytes(bytes);
                        },
                        [&](const error& why) {
                          out.u8(static_cast<std::uint8_t>(answer_kind::failure));
                          write_error(out, why);
                        }},
             what);
  send_({{to, out.take()}});
}

void peer_requests::take_answer(process_address from, wire_reader& in) {
  const std::uint64_t number = in.varint();
  const auto kind = in.one_of(answer_kind::elsewhere);
  error why;
  remote_buffer handle;
  std::string bytes;
  switch (kind) {
    case answer_kind::failure: why = read_error(in); break;
    case answer_kind::handle: handle_field(in, handle); break;
    case answer_kind::bytes: bytes = in.bytes(most_read_bytes); break;
    case answer_kind::elsewhere: break;
  }
  if (!in.ok()) return;
  if (kind == answer_kind::bytes && from.value() >= 0 && from.value() < world_size_) {
    const std::lock_guard lock{mutex_};
    received_bytes_[static_cast<std::size_t>(from.value())] += bytes.size();
  }
  if (kind == answer_kind::elsewhere) return take_part(number, from, true).reply.deliver(completion{});
  const auto [reply, queued, finished] = take_part(number, from, true, true);
  if (!finished) return;
  const auto* const wants_bytes = std::get_if<bytes_promise>(&finished->answer);
  const auto* const wants_handle = std::get_if<handle_promise>(&finished->answer);
  if (!why && (wants_bytes != nullptr) != (kind == answer_kind::bytes)) why = another_kind();
  if (wants_bytes != nullptr)
    why ? (*wants_bytes)->deliver(std::move(why)) : (*wants_bytes)->deliver(std::move(bytes));
  else
    why ? (*wants_handle)->deliver(std::move(why)) : (*wants_handle)->deliver(handle);
}

void peer_requests::lose(process_address peer) {
  std::vector<std::pair<std::uint64_t, bool>> all;
  {
    const std::lock_guard lock{mutex_};
    for (const auto& [number, one] : asked_) all.emplace_back(number, one->is_question());
  }
  const error why{.code = errc::stopping,
                  .effect = effect::unknown_outcome,
                  .text = name_of(peer) + " has left the world",
                  .rank = rank{peer.value()}};
  for (const auto& [number, is_question] : all) take_part(number, peer, is_question).reply.deliver(why);
}

void peer_requests::expire(time_point now) {
  std::vector<std::shared_ptr<asked_request>> late;
  std::vector<std::shared_ptr<captured_plan>> dropped;
  std::vector<bytes_promise> unread;
  {
    const std::lock_guard lock{mutex_};
    const running_time running = running_.read(now);
    std::erase_if(plans_, [&](auto& one) {
      if (one.second.ends > running) return false;
      take_name(one.second.plan);
      dropped.push_back(std::move(one.second.plan)); // released without the lock
      return true;
    });
    if (now < due_) return;
    due_ = time_point::max();
    const auto is_over = [&](time_point end) {
      if (end > now) due_ = std::min(due_, end);
      return end <= now;
    };
    for (auto it = asked_.begin(); it != asked_.end();) {
      const auto one = it++;
      if (is_over(one->second->give_up)) late.push_back(take_out(one));
    }
    std::erase_if(waiting_reads_, [&](waiting_read& one) {
      if (!is_over(one.give_up)) return false;
      unread.push_back(std::move(one.reply));
      return true;
    });
  }
  for (const bytes_promise& one : unread)
    one->deliver(error{.code = errc::deadline_exceeded,
                       .text = "the deadline of the read has passed while it waited for the answers to other reads of "
                               "this process, of which at most " +
                               std::to_string(most_awaited_bytes) + " bytes are asked for at one time"});
  for (const auto& one : late)
    for (std::size_t r = 0; r < one->replies.size(); ++r)
      one->replies[r].deliver(
          error{.code = errc::deadline_exceeded,
                .effect = effect::unknown_outcome,
                .text = "the process of rank " + std::to_string(r) + " has not answered by the request's deadline",
                .rank = rank{static_cast<int>(r)}});
  send_waiting_reads();
  if (!late.empty()) tell_quiet();
}

void peer_requests::close(const error& why) {
  decltype(asked_) left;
  decltype(held_) held;
  std::shared_ptr<const rank_services> services;
  decltype(plans_) plans;
  decltype(waiting_reads_) unread;
  {
    const std::lock_guard lock{mutex_};
    if (closed_) return;
    closed_ = why;
    left = std::exchange(asked_, {});
    held = std::exchange(held_, {});
    quiet_ = nullptr;
    unread = std::exchange(waiting_reads_, {});
    plans = std::exchange(plans_, {});
    for (const auto& [name, one] : plans) take_name(one.plan);
    services = std::exchange(services_, nullptr);
  }
  for (auto& [number, one] : left)
    for (auto& each : one->replies) each.deliver(with_unknown_outcome(why));
  for (held_request& one : held) {
    error told = why;
    told.effect = effect::rejected;
    told.ticket = one.what.name;
    one.what.reply.deliver(std::move(told));
  }
  for (const waiting_read& one : unread) {
    error told = why;
    told.effect = effect::rejected;
    one.reply->deliver(std::move(told));
  }
}

std::size_t peer_requests::pending() const {
  const std::lock_guard lock{mutex_};
  return asked_.size() + waiting_reads_.size();
}

} // namespace troupe
