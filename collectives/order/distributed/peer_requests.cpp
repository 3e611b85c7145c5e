#include <troupe/collectives/order/distributed/peer_requests.hpp>

#include <troupe/collectives/order/distributed/codec/report_codec.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/overloaded.hpp>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>

namespace troupe {

namespace {

enum class answer_kind : std::uint8_t { failure, handle, bytes };

/// Time beyond a request's deadline in which its ranks can report which of them are missing.
constexpr nanoseconds grace = std::chrono::seconds{2};
constexpr auto longest_span = static_cast<std::uint64_t>(std::numeric_limits<nanoseconds::rep>::max());
/// Lanes belong to clients. These numbers are not used for others: see rank_lane.
constexpr std::uint64_t first_client = std::uint64_t{1} << 62U;
constexpr std::size_t most_steps = 65'536;
/// Limit of the plans that one process may have captured at a rank.
constexpr std::ptrdiff_t most_plans = 1024;

std::string name_of(process_address one) {
  return one.value() >= 0 ? "the process of rank " + std::to_string(one.value())
                          : "process " + std::to_string(-one.value()) + " without a rank";
}

lane lane_of(process_address one) {
  return lane::named(one.value() >= 0 ? "the world, asked by rank " + std::to_string(one.value())
                                      : "the world, asked by process " + std::to_string(-one.value()));
}

template <class Kind>
std::string begin(Kind kind) {
  return {static_cast<char>(kind)};
}

} // namespace

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
  answer
};

/// Sends the outcome of a rank's part back to the process that has asked.
class peer_requests::reply_to_peer final : public outcome_sink {
public:
  reply_to_peer(std::weak_ptr<peer_requests> by, process_address to, std::uint64_t number)
    : by_{std::move(by)}, to_{to}, number_{number} {}

  void deliver(outcome result) noexcept override {
    try {
      if (const auto by = by_.lock()) by->send_reply(to_, number_, result);
    } catch (...) { // out of memory: the requesting process gives up after the deadline
    }
  }

private:
  std::weak_ptr<peer_requests> by_;
  process_address to_;
  std::uint64_t number_;
};

peer_requests::peer_requests(process_address self, int world_size, epoch formed_in,
                             std::shared_ptr<exported_memory> exported, sender send)
  : self_{self}, world_size_{world_size}, epoch_{formed_in}, exported_{std::move(exported)}, send_{std::move(send)} {}

peer_requests::~peer_requests() {
  close({.code = errc::abandoned, .text = "the order of the world has ended before the request was answered"});
}

void peer_requests::serve(rank_services what) {
  std::vector<std::pair<process_address, std::string>> early;
  {
    const std::lock_guard lock{mutex_};
    services_ = std::make_shared<const rank_services>(std::move(what));
  }
  for (;;) {
    {
      const std::lock_guard lock{mutex_};
      is_serving_ = early_.empty(); // later messages are behind these
      early = std::exchange(early_, {});
    }
    if (early.empty()) return;
    for (const auto& [from, bytes] : early) {
      wire_reader in{bytes};
      const bool is_capture = in.one_of(message_kind::answer) == message_kind::capture;
      is_capture ? take_capture(from, in) : take_request(from, in);
    }
  }
}

void peer_requests::ask(whole_request asked) {
  std::optional<operation> own;
  error why;
  if (asked.parts.size() != static_cast<std::size_t>(world_size_))
    why = {.code = errc::invalid_argument,
           .text = "the request has " + std::to_string(asked.parts.size()) + " parts, the world has " +
                   std::to_string(world_size_) + " ranks: give one part for each rank"};
  std::vector<wire_writer> all;
  const std::uint64_t number = begin_all(message_kind::request, asked.deadline, all);
  for (int r = 0; r < world_size_ && !why; ++r) {
    operation& part = asked.parts[static_cast<std::size_t>(r)];
    if (r == self_.value())
      own = std::move(part);
    else
      why = write_part(all[static_cast<std::size_t>(r)], part, rank{r});
  }
  ask_all(number, std::move(all), std::move(own), asked.name, asked.deadline, std::move(asked.reply), std::move(why));
}

std::uint64_t peer_requests::begin_all(message_kind kind, nanoseconds deadline, std::vector<wire_writer>& to) {
  constexpr std::size_t usual_bytes = 128;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock{mutex_};
    number = ++last_;
  }
  to.reserve(static_cast<std::size_t>(world_size_));
  for (int r = 0; r < world_size_; ++r) {
    wire_writer& out = to.emplace_back();
    out.reserve(usual_bytes);
    out.u8(static_cast<std::uint8_t>(r == self_.value() ? message_kind::own_request : kind));
    out.varint(number);
    out.varint(static_cast<std::uint64_t>(deadline.count()));
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
    out.varint(static_cast<std::uint64_t>(asked.lease.count()));
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
  ask_all(number, std::move(all), std::nullopt, asked.name, asked.deadline, std::move(asked.reply), std::move(why));
}

void peer_requests::ask_all(std::uint64_t number, std::vector<wire_writer> bodies, std::optional<operation> own,
                            ticket name, nanoseconds deadline, reply_promise reply, error why) {
  if (why) {
    why.ticket = name;
    return reply.deliver(std::move(why));
  }
  const time_point now = steady_now();
  auto replies = divide_promise(std::move(reply), name, bodies.size());
  {
    const std::lock_guard lock{mutex_};
    why = closed_;
    if (!why) {
      const time_point give_up = later(later(now, deadline), grace);
      due_ = std::min(due_, give_up);
      asked_.emplace(
          number, std::unique_ptr<asked_request>{new asked_request{std::move(replies), std::move(own), now, give_up}});
    }
  }
  if (why) {
    why.effect = effect::rejected;
    for (auto& one : replies) one.deliver(why);
    return;
  }
  messages all;
  all.reserve(bodies.size());
  for (int r = 0; r < world_size_; ++r)
    all.emplace_back(process_address{r}, bodies[static_cast<std::size_t>(r)].take());
  send_(std::move(all));
}

void peer_requests::receive(process_address from, std::string_view bytes) {
  if (bytes.empty()) return lose(from);
  wire_reader in{bytes};
  const auto kind = in.one_of(message_kind::answer);
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
      for (auto& [name, one] : plans_)
        if (one.holder == holder) one.ends = later(steady_now(), one.lease);
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
    case message_kind::read:
      if (exported_) take_read(from, in);
      return;
    case message_kind::find:
    case message_kind::lend:
      if (!exported_) return; // this process has no rank
      return take_question(from, in, kind == message_kind::find);
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
  const auto deadline = nanoseconds{static_cast<nanoseconds::rep>(in.varint(longest_span))};
  if (!in.ok()) return; // it cannot be answered
  reply_promise reply{std::make_unique<reply_to_peer>(weak_from_this(), from, number)};
  plan_options options{.streams = {}, .deadline = deadline, .name = std::string{in.bytes(longest_plan_name_bytes + 1)}};
  kept_plan kept{.holder = in.varint(), .lease = nanoseconds{static_cast<nanoseconds::rep>(in.varint(longest_span))}};
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
        one.ends = later(steady_now(), one.lease);
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
  due_ = std::min(due_, one.ends);
  kept_plan& place = plans_[{of, name}];
  dropped = std::exchange(place, closed_ ? kept_plan{} : std::move(one)).plan;
  if (!place.plan) plans_.erase({of, name});
}

void peer_requests::drop_plan(std::string_view name) {
  messages all;
  for (int r = 0; r < world_size_; ++r) {
    wire_writer out{begin(message_kind::drop_plan)};
    out.bytes(name.substr(0, longest_plan_name_bytes));
    all.emplace_back(process_address{r}, out.take());
  }
  send_(std::move(all));
}

void peer_requests::take_request(process_address from, wire_reader& in) {
  const std::uint64_t number = in.varint();
  const auto deadline = nanoseconds{static_cast<nanoseconds::rep>(in.varint(longest_span))};
  if (!in.ok()) return; // it cannot be answered
  reply_promise reply{std::make_unique<reply_to_peer>(weak_from_this(), from, number)};
  rank_request asked{.what = barrier{}, .epoch = epoch_, .deadline = deadline, .site = call_site{}};
  error objection;
  std::shared_ptr<const rank_services> services;
  bool is_known = false;
  {
    const std::lock_guard lock{mutex_};
    services = services_;
    objection = count_request(from);
    const auto [at, is_new] = lanes_.try_emplace(from);
    if (is_new) at->second = lane_of(from);
    asked.lane = at->second;
    if (from == self_) {
      if (const auto found = asked_.find(number); found != asked_.end() && found->second->own) {
        asked.what = *std::exchange(found->second->own, std::nullopt);
        is_known = true;
      }
    }
  }
  if (!services) return; // the epoch has ended
  const rank self{self_.value()};
  if (!is_known) {
    if (auto part = read_part(in, self)) asked.what = std::move(*part);
    if (!in.ok() && !objection) objection = in.failure("a request of " + name_of(from));
  }
  if (error missing = resolve_part(asked.what, services->here, self); missing && !objection)
    objection = std::move(missing);
  if (objection && !objection.rank) objection.rank = self;
  services->ask(std::move(asked), std::move(objection), std::move(reply),
                first_client + static_cast<std::uint64_t>(static_cast<std::uint32_t>(from.value())));
}

void peer_requests::send_reply(process_address to, std::uint64_t number, const outcome& result) {
  wire_writer out{begin(message_kind::reply)};
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
  nanoseconds launched{0}, done{0};
  if (has_succeeded) {
    launched = nanoseconds{static_cast<nanoseconds::rep>(in.varint(longest_span / 2))};
    done = nanoseconds{static_cast<nanoseconds::rep>(in.varint(longest_span / 2))};
  } else {
    failure = read_error(in);
  }
  if (!in.ok() || from.value() < 0 || from.value() >= world_size_) return;
  reply_promise reply;
  std::unique_ptr<asked_request> over; // destroyed without the lock
  time_point queued{};
  {
    const std::lock_guard lock{mutex_};
    const auto found = asked_.find(number);
    if (found == asked_.end()) return; // it has been given up
    auto& replies = found->second->replies;
    reply = std::move(replies[static_cast<std::size_t>(from.value())]);
    queued = found->second->queued;
    if (std::ranges::none_of(replies, &reply_promise::pending)) {
      over = std::move(found->second);
      asked_.erase(found);
    }
  }
  if (failure)
    reply.deliver(std::move(failure));
  else // the processes may have different clocks
    reply.deliver(completion{.ticket = {},
                             .epoch = epoch_,
                             .times = {.queued = queued, .launched = queued + launched, .done = queued + done}});
}

namespace {

void write_buffer(wire_writer& out, const remote_buffer& one) {
  out.varint(static_cast<std::uint64_t>(one.exporter.value()));
  out.varint(one.session);
  out.varint(one.id);
  out.varint(one.offset_bytes);
  out.varint(one.size_bytes);
  out.flag(one.on_host);
}

remote_buffer read_buffer(wire_reader& in) {
  remote_buffer one{.exporter = rank{static_cast<int>(in.varint(std::numeric_limits<int>::max()))}};
  one.session = in.varint();
  one.id = in.varint();
  one.offset_bytes = in.varint();
  one.size_bytes = in.varint();
  one.on_host = in.flag();
  return one;
}

} // namespace

void peer_requests::ask_question(rank target, std::string body, nanoseconds deadline,
                                 std::variant<handle_promise, bytes_promise> reply) {
  question asked{target, std::move(reply), later(later(steady_now(), deadline), grace)};
  error why;
  if (target.value() < 0 || target.value() >= world_size_)
    why = {.code = errc::invalid_argument,
           .text = "rank " + to_string(target) + " is not in this world: its ranks are 0 to " +
                   std::to_string(world_size_ - 1)};
  {
    const std::lock_guard lock{mutex_};
    if (!why) why = closed_;
    if (!why) {
      due_ = std::min(due_, asked.give_up);
      questions_.emplace(++last_, asked);
      wire_writer out{body.substr(0, 1)};
      out.varint(last_);
      out.raw(std::string_view{body}.substr(1));
      body = out.take();
    }
  }
  if (why) return asked.fail(why);
  send_({{process_address{target.value()}, std::move(body)}});
}

void peer_requests::find(rank target, std::string_view name, nanoseconds deadline, handle_promise reply) {
  wire_writer out{begin(message_kind::find)};
  out.bytes(name.substr(0, longest_export_name_bytes));
  ask_question(target, out.take(), deadline, std::move(reply));
}

void peer_requests::lend(rank target, lent_kind what, std::size_t size_bytes, std::uint64_t holder, nanoseconds lease,
                         nanoseconds deadline, handle_promise reply) {
  wire_writer out{begin(message_kind::lend)};
  out.u8(static_cast<std::uint8_t>(what));
  out.varint(size_bytes);
  out.varint(holder);
  out.varint(static_cast<std::uint64_t>(lease.count()));
  ask_question(target, out.take(), deadline, std::move(reply));
}

void peer_requests::read(const remote_buffer& from, nanoseconds deadline, bytes_promise reply) {
  if (!from.on_host || from.size_bytes > most_read_bytes)
    return reply->deliver(
        error{.code = errc::invalid_argument,
              .text = from.on_host ? "a read of " + std::to_string(from.size_bytes) + " bytes exceeds the limit of " +
                                         std::to_string(most_read_bytes) + ": read it in parts"
                                   : "only host memory can be read: let the rank copy it to host memory first (copy)"});
  wire_writer out{begin(message_kind::read)};
  write_buffer(out, from);
  ask_question(from.exporter, out.take(), deadline, std::move(reply));
}

void peer_requests::take_read(process_address from, wire_reader& in) {
  const std::uint64_t number = in.varint();
  const remote_buffer wanted = read_buffer(in);
  if (!in.ok()) return;
  error why;
  const buffer memory = exported_->find(wanted, rank{self_.value()}, why);
  if (!why && (!memory.on_host() || memory.size_bytes() > most_read_bytes))
    why = {.code = errc::invalid_argument, .text = "only host memory can be read, and not so much at once"};
  if (why) return answer(from, number, why);
  answer(from, number, std::string_view{reinterpret_cast<const char*>(memory.data()), memory.size_bytes()});
}

void peer_requests::renew(std::uint64_t holder) {
  messages all;
  for (int r = 0; r < world_size_; ++r) {
    wire_writer out{begin(message_kind::renew)};
    out.varint(holder);
    all.emplace_back(process_address{r}, out.take());
  }
  send_(std::move(all));
}

void peer_requests::give_back(const remote_buffer& lent) {
  messages all; // to all, because its exporter may have another rank now
  for (int r = 0; r < world_size_; ++r) {
    wire_writer out{begin(message_kind::give_back)};
    out.varint(lent.session);
    out.varint(lent.id);
    all.emplace_back(process_address{r}, out.take());
  }
  send_(std::move(all));
}

void peer_requests::take_question(process_address from, wire_reader& in, bool is_find) {
  const std::uint64_t number = in.varint();
  const rank self{self_.value()};
  if (is_find) {
    const std::string name{in.bytes(longest_export_name_bytes)};
    if (!in.ok()) return;
    try {
      answer(from, number, exported_->find(name, self, true));
    } catch (const exception& failure) {
      answer(from, number, failure.why());
    }
    return;
  }
  const auto what = in.one_of(lent_kind::flight_record);
  const std::uint64_t size_bytes = in.varint();
  const std::uint64_t holder = in.varint();
  const auto lease = nanoseconds{static_cast<nanoseconds::rep>(in.varint(longest_span))};
  if (!in.ok()) return;
  std::shared_ptr<const rank_services> services;
  {
    const std::lock_guard lock{mutex_};
    services = services_;
  }
  if (!services || holder == 0)
    return answer(
        from, number,
        error{.code = errc::rebuilding, .text = "the rank's process is not ready yet: ask again", .rank = self});
  services->lend(what, size_bytes,
                 [weak = weak_from_this(), from, number, holder, lease, self](buffer memory, error why) {
                   const auto by = weak.lock();
                   if (!by) return;
                   remote_buffer handle;
                   try {
                     if (!why) handle = by->exported_->lend(self, std::move(memory), holder, lease, steady_now());
                   } catch (const exception& failure) {
                     why = failure.why();
                   }
                   if (!why) return by->answer(from, number, handle);
                   if (!why.rank) why.rank = self;
                   by->answer(from, number, why);
                 });
}

void peer_requests::answer(process_address to, std::uint64_t number,
                           const std::variant<remote_buffer, std::string_view, error>& what) {
  wire_writer out{begin(message_kind::answer)};
  out.varint(number);
  std::visit(overloaded{[&](const remote_buffer& handle) {
                          out.u8(static_cast<std::uint8_t>(answer_kind::handle));
                          write_buffer(out, handle);
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
  const auto kind = in.one_of(answer_kind::bytes);
  error why;
  remote_buffer handle;
  std::string bytes;
  switch (kind) {
    case answer_kind::failure: why = read_error(in); break;
    case answer_kind::handle: handle = read_buffer(in); break;
    case answer_kind::bytes: bytes = in.bytes(most_read_bytes); break;
  }
  if (!in.ok()) return;
  question asked;
  {
    const std::lock_guard lock{mutex_};
    const auto found = questions_.find(number);
    if (found == questions_.end() || found->second.target.value() != from.value()) return;
    asked = std::move(found->second);
    questions_.erase(found);
  }
  const bool wants_bytes = std::holds_alternative<bytes_promise>(asked.reply);
  if (!why && wants_bytes != (kind == answer_kind::bytes))
    why = {.code = errc::internal,
           .text = "the process of rank " + to_string(asked.target) + " has answered otherwise"};
  if (why) return asked.fail(why);
  if (wants_bytes)
    std::get<bytes_promise>(asked.reply)->deliver(std::move(bytes));
  else
    std::get<handle_promise>(asked.reply)->deliver(handle);
}

void peer_requests::lose(process_address peer) {
  if (peer.value() < 0 || peer.value() >= world_size_) return;
  std::vector<reply_promise> pending;
  std::vector<question> unanswered;
  std::vector<std::unique_ptr<asked_request>> over; // destroyed without the lock
  {
    const std::lock_guard lock{mutex_};
    std::erase_if(questions_, [&](const auto& one) {
      if (one.second.target.value() != peer.value()) return false;
      unanswered.push_back(one.second);
      return true;
    });
    for (auto at = asked_.begin(); at != asked_.end();) {
      auto& replies = at->second->replies;
      pending.push_back(std::move(replies[static_cast<std::size_t>(peer.value())]));
      const bool has_more = std::ranges::any_of(replies, &reply_promise::pending);
      if (!has_more) over.push_back(std::move(at->second));
      at = has_more ? std::next(at) : asked_.erase(at);
    }
  }
  const error why{.code = errc::stopping,
                  .effect = effect::unknown_outcome,
                  .text = name_of(peer) + " has left the world",
                  .rank = rank{peer.value()}};
  for (reply_promise& one : pending) one.deliver(why);
  for (const question& one : unanswered) one.fail(why);
}

void peer_requests::expire(time_point now) {
  std::vector<std::unique_ptr<asked_request>> late;
  std::vector<question> unanswered;
  std::vector<std::shared_ptr<captured_plan>> dropped;
  {
    const std::lock_guard lock{mutex_};
    if (now < due_) return;
    due_ = time_point::max();
    std::erase_if(plans_, [&](auto& one) {
      if (one.second.ends > now) {
        due_ = std::min(due_, one.second.ends);
        return false;
      }
      dropped.push_back(std::move(one.second.plan));
      return true;
    });
    for (auto at = asked_.begin(); at != asked_.end();) {
      const bool is_late = at->second->give_up <= now;
      if (is_late)
        late.push_back(std::move(at->second));
      else
        due_ = std::min(due_, at->second->give_up);
      at = is_late ? asked_.erase(at) : std::next(at);
    }
    std::erase_if(questions_, [&](const auto& one) {
      if (one.second.give_up > now) {
        due_ = std::min(due_, one.second.give_up);
        return false;
      }
      unanswered.push_back(one.second);
      return true;
    });
  }
  for (const question& one : unanswered)
    one.fail({.code = errc::deadline_exceeded,
              .text = "the process of rank " + to_string(one.target) + " has not answered in time",
              .rank = one.target});
  for (const auto& one : late)
    for (std::size_t r = 0; r < one->replies.size(); ++r)
      one->replies[r].deliver(
          error{.code = errc::deadline_exceeded,
                .effect = effect::unknown_outcome,
                .text = "the process of rank " + std::to_string(r) + " has not answered by the request's deadline",
                .rank = rank{static_cast<int>(r)}});
}

void peer_requests::close(const error& why) {
  std::map<std::uint64_t, std::unique_ptr<asked_request>> left;
  std::map<std::uint64_t, question> unanswered;
  std::shared_ptr<const rank_services> services;
  decltype(plans_) plans;
  {
    const std::lock_guard lock{mutex_};
    if (closed_) return;
    closed_ = why;
    left = std::exchange(asked_, {});
    unanswered = std::exchange(questions_, {});
    early_.clear();
    services = std::exchange(services_, nullptr);
    plans = std::exchange(plans_, {});
  }
  for (auto& [number, one] : left)
    for (auto& each : one->replies) each.deliver(with_unknown_outcome(why));
  for (const auto& [number, one] : unanswered) one.fail(why);
}

std::size_t peer_requests::pending() const {
  const std::lock_guard lock{mutex_};
  return asked_.size();
}

} // namespace troupe
