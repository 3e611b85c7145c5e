#include <troupe/processes/order/order_connection.hpp>

#include <troupe/collectives/progress/progress_record.hpp>
#include <troupe/processes/order/distributed_capture.hpp>
#include <troupe/processes/order/fusion_facts.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe {

/// A rank of one world in one epoch, and its turns and captures that the controller has not decided.
/// Threads: see the comment of each member.
struct ordered_rank {
  /// A turn that the controller has not decided.
  struct asked_turn {
    distributed_order::turn_work work{};
    distributed_order::capture_start start{}; ///< Set instead of `work` if a capture begins there.
  };

  ordered_rank(std::uint64_t number, std::shared_ptr<rank_pipeline> its, const fusion_limits& fused)
    : world{number},
      pipeline{std::move(its)},
      successes{pipeline->successes()},
      examiner{pipeline->self(), pipeline->world_size(), fused} {}

  const std::uint64_t world; ///< The controller's number of the world; 0: the whole world.
  const std::shared_ptr<rank_pipeline> pipeline;
  const std::shared_ptr<const success_count> successes;

  std::atomic<std::uint64_t> sent_successes{0}; ///< Number of successes that were reported to the controller.
  pipeline_progress sent_progress;              ///< Accessed only by tasks of the connection's queue.
  fusion_examiner examiner;                     ///< As above.
  /// Changed by tasks of the queue, with the connection's mutex_ locked. Read by these tasks, or with it locked.
  std::vector<std::shared_ptr<registered_pool>> registered;
  std::uint64_t released = 0; ///< Number of requests that were released. Accessed only by receive().

  std::shared_ptr<peer_requests> peers{}; ///< Set by order_connection::add(), and does not change.

  std::atomic<bool> is_closing{false};                            ///< The rank leaves it: `closed` is set.
  const std::shared_ptr<latch> ended = std::make_shared<latch>(); ///< Opened when nothing more is decided.

  // Guarded by the connection's mutex_.
  error closed;
  std::uint64_t turns = 0; ///< Number of turns that were requested.
  std::uint64_t turns_granted = 0;
  std::map<std::uint64_t, asked_turn> turns_asked;                        ///< By number, from 1.
  std::map<std::uint64_t, std::shared_ptr<distributed_capture>> captures; ///< By place, until their last answer.
  std::map<std::string, std::uint64_t> captures_of_name;                  ///< Number of captures that were requested.
};

namespace {

/// Number of launches with which a launcher is busy: one in progress, and the next.
constexpr std::size_t enough_launches = 2;
/// A batch with this many bytes or records is sent in any case.
constexpr std::size_t enough_bytes = std::size_t{16} << 10U;
constexpr std::size_t enough_records = 64;
/// Time beyond the deadline of a request or a capture in which the controller can report which ranks are missing or
/// late.
constexpr nanoseconds controller_grace = std::chrono::seconds{1};

} // namespace

order_connection::order_connection(std::shared_ptr<rank_pipeline> pipeline, epoch formed_in,
                                   std::shared_ptr<const clock> time, sender send, fusion_limits fused,
                                   std::shared_ptr<exported_memory> exported)
  : epoch_{formed_in},
    time_{std::move(time)},
    fused_{fused},
    exported_{exported ? std::move(exported) : std::make_shared<exported_memory>(0)},
    window_{std::move(send)},
    in_{pipeline->world_size()},
    whole_{add(0, std::move(pipeline))},
    queue_{[this] { end_round(); }} {}

order_connection::~order_connection() {
  close({.code = errc::abandoned, .text = "the order of the world has ended before the request was launched"});
}

std::shared_ptr<ordered_rank> order_connection::add(std::uint64_t world, std::shared_ptr<rank_pipeline> pipeline) {
  auto made = std::make_shared<ordered_rank>(world, std::move(pipeline), fused_);
  made->peers =
      std::make_shared<peer_requests>(process_address{made->pipeline->self().value()}, made->pipeline->world_size(),
                                      epoch_, exported_, [world, weak = self_](peer_requests::messages all) {
                                        if (const auto self = weak->lock()) self->send_messages(world, std::move(all));
                                      });
  std::unique_lock lock{mutex_};
  has_parts_ = has_parts_ || world != 0;
  // Until the world is in worlds_, its messages are kept in early_, so this thread alone delivers them. It does so
  // without the lock: requests wait for serve(), but questions are answered at once, which needs the lock.
  while (!closed_) {
    const auto early = early_.extract(world);
    if (early.empty()) {
      const auto behind = std::ranges::upper_bound(worlds_, world, {}, [](const auto& one) { return one->world; });
      worlds_.insert(behind, made);
      return made;
    }
    lock.unlock();
    for (const auto& [from, bytes] : early.mapped()) made->peers->receive(from, bytes);
    lock.lock();
  }
  made->closed = closed_;
  made->ended->open();
  made->peers->close(closed_); // nothing has been asked of it, so it answers nobody under the lock
  return made;
}

std::shared_ptr<distributed_order> order_connection::whole() {
  *self_ = weak_from_this();
  watch(*whole_);
  return std::make_shared<distributed_order>(shared_from_this(), whole_);
}

std::shared_ptr<distributed_order> order_connection::open(std::uint64_t world,
                                                          std::shared_ptr<rank_pipeline> pipeline) {
  auto made = add(world, std::move(pipeline));
  watch(*made);
  return std::make_shared<distributed_order>(shared_from_this(), std::move(made));
}

void order_connection::watch(const ordered_rank& of) {
  if (fused_.mode != fusion::free) return;
  of.pipeline->on_launched([waits = awaits_launcher_, weak = weak_from_this()] {
    if (!waits->load()) return;
    if (const auto self = weak.lock(); self && !self->is_launcher_busy()) self->queue_.run([] {}); // sends the batch
  });
}

std::shared_ptr<ordered_rank> order_connection::find(std::uint64_t world) const {
  const auto found = std::ranges::lower_bound(worlds_, world, {}, [](const auto& one) { return one->world; });
  return found != worlds_.end() && (*found)->world == world ? *found : nullptr;
}

void order_connection::ask(const std::shared_ptr<ordered_rank>& of, lane_request asked) {
  undecided_ask made{.of = of,
                     .where = asked.where,
                     .client = asked.client,
                     .position = asked.position,
                     .objection = std::move(asked.objection)};
  made.call = of->pipeline->prepare({.name = asked.name,
                                     .what = std::move(asked.what),
                                     .deadline = asked.deadline,
                                     .reply = std::move(asked.reply),
                                     .from = request_origin{.lane = asked.where, .client = asked.client},
                                     .site = asked.site},
                                    time_->now());
  if (!std::holds_alternative<agree>(made.call->what())) made.give_up = later(made.call->deadline(), controller_grace);
  queue_.run([this, made = std::move(made), deadline = asked.deadline]() mutable { take(std::move(made), deadline); });
}

void order_connection::take(undecided_ask asked, nanoseconds deadline) {
  ordered_rank& of = *asked.of;
  if (next_ && &of == whole_.get()) return pass_on(std::move(asked));
  if (!is_closed() && !of.is_closing.load(std::memory_order_acquire)) {
    const operation& what = asked.call->what();
    request_facts facts = fused_.mode == fusion::free ? examine(of, what) : request_facts{};
    if (!of.registered.empty()) facts.places = digest_of_places(what, of.registered);
    out_.select(of.world);
    if (asked.objection) facts = {};
    if (error refusal = out_.ask(what, asked.where, asked.client, asked.position, deadline, facts, std::nullopt,
                                 asked.objection.get())) {
      of.examiner.forget(asked_ + 1);
      refusal.rank = of.pipeline->self();
      return asked.call->fail(std::move(refusal));
    }
    const std::lock_guard lock{mutex_};
    may_wait_ = may_wait_ && facts.bytes > 0 && may_join_batch(facts);
    if (!closed_) { // if the rank has left the world meanwhile, the controller refuses the request
      due_ = std::min(due_, asked.give_up);
      asks_.emplace_hint(asks_.end(), ++asked_, std::move(asked));
      if (first_of_batch_ == 0) first_of_batch_ = asked_;
      return;
    }
  }
  asked.call->fail(of.closed); // `closed` no longer changes
}

bool order_connection::may_join_batch(const request_facts& facts) noexcept {
  if (first_of_batch_ == 0) return forecast_.expects_company();
  const bool joins = facts.overlaps < first_of_batch_;
  forecast_.note(joins);
  return joins;
}

request_facts order_connection::examine(ordered_rank& of, const operation& what) {
  std::uint64_t number = 0, decided = 0;
  {
    const std::lock_guard lock{mutex_};
    if (asks_.empty()) return {}; // a lone request is launched alone and needs no facts
    number = asked_ + 1;
    decided = asks_.begin()->first - 1;
  }
  if (!std::exchange(has_sent_limits_, true))
    out_.add({.kind = request_record::form::limits, .count = fused_.max_operations, .bytes = fused_.max_bytes});
  return of.examiner.examine(what, number, decided);
}

request_writer& order_connection::records_of(const ordered_rank& of) {
  may_wait_ = false;
  out_.select(of.world);
  return out_;
}

template <class Task>
void order_connection::run_open(Task task) {
  queue_.run([this, task = std::move(task)]() mutable {
    if (!is_closed()) task();
  });
}

void order_connection::write(const std::shared_ptr<ordered_rank>& of, request_record record) {
  run_open([this, of, record = std::move(record)] { records_of(*of).add(record); });
}

void order_connection::write(const std::shared_ptr<ordered_rank>& of, request_record record,
                             std::function<void(world_order& next, rank self)> pass) {
  queue_.run([this, of, record = std::move(record), pass = std::move(pass)] {
    if (next_ && of == whole_) return pass(*next_, next_self_);
    if (!is_closed()) records_of(*of).add(record);
  });
}

void order_connection::send_messages(std::uint64_t world, peer_requests::messages all) {
  run_open([this, world, all = std::move(all)]() mutable {
    may_wait_ = false;
    out_.select(world);
    for (auto& [to, bytes] : all) {
      out_.add({.kind = request_record::form::message, .to = to, .message = std::move(bytes)});
      if (out_.size_bytes() < full_batch_bytes) continue;
      send_batch(whole_->successes->value());
      may_wait_ = false;
      out_.select(world);
    }
  });
}

void order_connection::set_registered(const std::shared_ptr<ordered_rank>& of,
                                      std::vector<std::shared_ptr<registered_pool>> pools) {
  queue_.run([this, of, pools = std::move(pools)]() mutable {
    const std::lock_guard lock{mutex_};
    of->registered.swap(pools); // the last reference to a pool is not dropped under the lock
  });
}

void order_connection::leave(const std::shared_ptr<ordered_rank>& of, error why, bool for_good) {
  why.effect = effect::rejected;
  queue_.run([this, of, why = std::move(why), for_good] {
    {
      const std::lock_guard lock{mutex_};
      if (of->closed) return;
      of->closed = why;
    }
    of->is_closing = true;
    if (for_good) records_of(*of).add({.kind = request_record::form::close, .why = why});
  });
}

void order_connection::decline(std::uint64_t world, error why) {
  why.effect = effect::rejected;
  run_open([this, world, why = std::move(why)] {
    {
      const std::lock_guard lock{mutex_};
      declined_.insert(world);
      early_.erase(world);
    }
    may_wait_ = false;
    out_.select(world);
    out_.add({.kind = request_record::form::close, .why = why});
  });
}

bool order_connection::may_send() const noexcept {
  return sent_.load() - seen_.load() < most_unseen_batches || out_.size_bytes() >= enough_bytes ||
         out_.records() >= enough_records;
}

bool order_connection::awaits_launcher() const {
  return may_wait_ && out_.records() < fused_.max_operations && is_launcher_busy();
}

bool order_connection::is_launcher_busy() const {
  if (!has_parts_) return whole_->pipeline->unlaunched() >= enough_launches; // without the lock
  const std::lock_guard lock{mutex_};
  return std::ranges::any_of(worlds_, [](const auto& one) { return one->pipeline->unlaunched() >= enough_launches; });
}

void order_connection::write_successes() {
  const std::lock_guard lock{mutex_};
  for (const auto& one : worlds_) {
    const std::uint64_t succeeded = one->successes->value();
    if (one == whole_ || succeeded == one->sent_successes) continue; // the count of the whole world is in the header
    one->sent_successes = succeeded;
    out_.select(one->world);
    successes_.count = succeeded;
    out_.add(successes_);
  }
}

void order_connection::end_round() noexcept {
  if (is_closed()) return;
  send_kept();
  const std::uint64_t succeeded = whole_->successes->value();
  if (has_parts_ && (must_report_ || !out_.empty())) write_successes();
  if (out_.empty() && (!must_report_ || succeeded == whole_->sent_successes)) return;
  if (!must_report_ && awaits_launcher()) {
    // Set before the second check, as below.
    awaits_launcher_->store(true);
    if (awaits_launcher()) return;
  }
  if (awaits_launcher_->load(std::memory_order_relaxed)) awaits_launcher_->store(false); // other cores read its line
  must_report_ = false;
  if (!may_send()) {
    // Set before the second check. A concurrent receive() either sees the flag, or the second check sees its update.
    holds_back_.store(true);
    if (!may_send()) return;
  }
  if (holds_back_.load(std::memory_order_relaxed)) holds_back_.store(false);
  send_batch(succeeded);
}

void order_connection::send_batch(std::uint64_t succeeded) {
  const std::uint64_t number = sent_.load(std::memory_order_relaxed) + 1;
  sent_.store(number);
  whole_->sent_successes = succeeded;
  may_wait_ = true;
  first_of_batch_ = 0;
  window_.send(out_.take({.epoch = epoch_, .number = number, .succeeded = succeeded}));
  send_kept();
}

void order_connection::send_kept() {
  if (!window_.acknowledge(seen_.load())) return;
  // Set before the second look, as in end_round().
  holds_back_.store(true);
  window_.acknowledge(seen_.load());
}

error order_connection::receive(std::string_view batch) {
  const std::lock_guard deciding{deciding_};
  const rank self = whole_->pipeline->self();
  wire_reader in{batch};
  const batch_header header = batch_header::read(in);
  if (in.ok() && header.epoch < epoch_) return {};
  if (header.epoch > epoch_) in.refuse("it is of an epoch that has not begun here");
  if (header.number != received_ + 1) in.refuse("batches before it are missing, or it is a duplicate");
  if (header.seen > sent_.load() || header.seen < seen_.load())
    in.refuse("it confirms batches that have not been sent");
  if (in.ok()) {
    received_ = header.number;
    seen_.store(header.seen);
    if (holds_back_.load()) queue_.run([] {}); // the end of its round sends the batch
  }
  error failure;
  last_released_.reset();
  decision_record one;
  {
    const std::lock_guard lock{mutex_};
    if (closed_) {
      followed_.store(header.controller_batch, std::memory_order_release);
      return {};
    }
    while (!failure && in_.next(in, one)) failure = decide(one);
  }
  // Executes the steps before the failure too, because they were decided for the peers as well. The lock is not held,
  // because an answered client may send another request.
  for (step& next : steps_) follow(next);
  steps_.clear();
  if (in.ok()) followed_.store(header.controller_batch, std::memory_order_release);
  if (!failure) failure = in.failure("what the controller has decided for rank " + to_string(self));
  if (failure) failure.rank = self;
  return failure;
}

void order_connection::answer(const released_call& agree, time_point now) {
  if (agree.call->agreed_on(agree.agreed, now) && agree.of->pipeline->self() == rank{0})
    agree.of->peers->tell_agreed(agree.call->from().lane, *agree.agreed);
}

void order_connection::follow(step& next) {
  if (auto* const one = std::get_if<released_call>(&next)) {
    one->call->all_have_asked();
    one->call->released_as(++one->of->released);
    if (one->agreed) {
      rank_pipeline& pipeline = *one->of->pipeline;
      return pipeline.answer_under_lease([agree = std::move(*one), time = time_](const error& why) {
        if (why) return agree.call->fail(with_unknown_outcome(why)); // another rank may have received the value
        answer(agree, time->now());
      });
    }
    if (one->others.empty()) return one->of->pipeline->submit(std::move(one->call));
    pipeline_calls together;
    together.push_back(std::move(one->call));
    for (auto& each : one->others) {
      each->all_have_asked();
      each->released_as(++one->of->released);
      together.push_back(std::move(each));
    }
    one->of->pipeline->submit_together(std::move(together));
  } else if (auto* const refused = std::get_if<refused_call>(&next)) {
    refused->call->fail(std::move(refused->why));
  } else {
    std::get<std::function<void()>>(next)();
  }
}

error order_connection::decide(decision_record& one) {
  const bool is_of_request = one.kind == decision_record::form::release || one.kind == decision_record::form::refusal;
  if (!is_of_request && one.kind != decision_record::form::message) last_released_.reset();
  if (one.kind == decision_record::form::turn) return decide_turn(one);
  if (one.kind == decision_record::form::capture) return decide_capture(one);
  if (one.kind == decision_record::form::closed) return decide_close(one);
  if (one.kind == decision_record::form::message) return decide_message(one);
  if (one.kind == decision_record::form::ending) {
    ending_ = std::move(one.why);
    return {};
  }
  auto node = asks_.extract(one.number);
  if (node.empty())
    return {.code = errc::internal,
            .text = "the controller has decided request " + std::to_string(one.number) + " of rank " +
                    to_string(whole_->pipeline->self()) + ", which does not wait for a decision"};
  undecided_ask& found = node.mapped();
  const rank_pipeline& pipeline = *found.of->pipeline;
  if (one.kind == decision_record::form::release) {
    if ((one.value != nullptr) != std::holds_alternative<agree>(found.call->what()) || (one.value && one.joins)) {
      asks_.insert(std::move(node));
      return {.code = errc::internal,
              .text = "the controller has released an agree without its value, or another request with one"};
    }
    if (const auto position = one.position ? one.position : found.position)
      found.call->stands_at({found.where, *position, found.client});
    if (!one.joins) {
      last_released_ = steps_.size();
      steps_.emplace_back(
          released_call{.of = std::move(found.of), .call = std::move(found.call), .agreed = std::move(one.value)});
      return {};
    }
    auto* const previous = last_released_ ? &std::get<released_call>(steps_[*last_released_]) : nullptr;
    if (previous == nullptr || previous->of != found.of || previous->agreed) {
      asks_.insert(std::move(node));
      return {.code = errc::internal,
              .text = "the controller has released a request together with one that is not before it"};
    }
    previous->others.push_back(std::move(found.call));
    return {};
  }
  if (one.absence && one.absence->ranks.size() != static_cast<std::size_t>(pipeline.world_size())) {
    asks_.insert(std::move(node));
    return {.code = errc::internal, .text = "a report of the controller does not cover all ranks of the world"};
  }
  if (one.absence && one.absence_is_new) {
    auto& mine = one.absence->ranks[static_cast<std::size_t>(pipeline.self().value())];
    pipeline_progress progress = pipeline.progress();
    mine.last_launched = std::move(progress.launched);
    mine.last_finished = std::move(progress.finished);
  }
  one.why.absence = one.absence;
  if (!one.why.rank) one.why.rank = pipeline.self();
  steps_.emplace_back(refused_call{std::move(found.call), std::move(one.why)});
  return {};
}

error order_connection::decide_turn(decision_record& one) {
  const auto of = find(one.world);
  const auto found = of ? of->turns_asked.find(one.number) : decltype(of->turns_asked.begin()){};
  if (!of || found == of->turns_asked.end())
    return {.code = errc::internal, .text = "the controller has decided a turn that does not wait for a decision"};
  ordered_rank::asked_turn asked = std::move(found->second);
  of->turns_asked.erase(found);
  if (!one.why) ++of->turns_granted;
  if (one.why && !one.why.rank) one.why.rank = of->pipeline->self();
  if (!asked.start) {
    steps_.emplace_back([work = std::move(asked.work), why = std::move(one.why), opened = std::move(one.opened)] {
      work(why, opened);
    });
    return {};
  }
  // Made now, because the next decision may be that the capture has failed. A rank may still be in the capture when the
  // order has ended; then nothing is sent.
  std::shared_ptr<distributed_capture> made;
  if (!one.why)
    made = of->captures[of->turns_granted] = std::make_shared<distributed_capture>(
        of->turns_granted,
        [weak = weak_from_this(), of](request_record record) {
          if (const auto self = weak.lock()) self->write(of, std::move(record));
        },
        of->registered);
  steps_.emplace_back([start = std::move(asked.start), made, why = std::move(one.why)] { start(made, why); });
  return {};
}

error order_connection::decide_capture(decision_record& one) {
  const auto of = find(one.world);
  const auto found = of ? of->captures.find(one.number) : decltype(of->captures.begin()){};
  if (!of || found == of->captures.end())
    return {.code = errc::internal, .text = "the controller has decided about a capture that is not under way"};
  const auto capture = found->second;
  const bool is_last = capture->has_ended() || one.why;
  if (is_last) of->captures.erase(found);
  steps_.emplace_back([capture, agreed = one.agreed, why = std::move(one.why)] { capture->answer(why, agreed); });
  return {};
}

error order_connection::decide_close(decision_record& one) {
  if (declined_.erase(one.world) > 0) return {};
  const auto of = find(one.world);
  if (!of || !of->closed)
    return {.code = errc::internal, .text = "the controller has closed a world that this rank has not left"};
  if (of == whole_) {
    steps_.emplace_back([this] { close(whole_->closed); });
    return {};
  }
  std::erase(worlds_, of);
  steps_.emplace_back([of] {
    end(*of, of->closed);
    of->ended->open();
  });
  return {};
}

error order_connection::decide_message(decision_record& one) {
  const auto of = find(one.world);
  if (!of) { // the world is opened later, or has been left
    if (!declined_.contains(one.world)) early_[one.world].emplace_back(one.from, std::move(one.message));
    return {};
  }
  steps_.emplace_back(
      [peers = of->peers, from = one.from, bytes = std::move(one.message)] { peers->receive(from, bytes); });
  return {};
}

void order_connection::end(ordered_rank& of, const error& why) {
  const auto turns = std::exchange(of.turns_asked, {});
  const auto captures = std::exchange(of.captures, {});
  for (const auto& [number, one] : turns) one.start ? one.start(nullptr, why) : one.work(why, {});
  for (const auto& [place, one] : captures) one->answer(why, 0);
  of.peers->close(why);
}

void order_connection::tell_progress() {
  run_open([this] {
    must_report_ = true;
    std::vector<std::shared_ptr<ordered_rank>> all;
    {
      const std::lock_guard lock{mutex_};
      all = worlds_;
    }
    for (const auto& one : all) {
      pipeline_progress now = one->pipeline->progress();
      if (now.launched == one->sent_progress.launched && now.finished == one->sent_progress.finished) continue;
      records_of(*one).add(
          {.kind = request_record::form::progress, .launched = now.launched, .finished = now.finished});
      one->sent_progress = std::move(now);
    }
  });
}

void order_connection::expire(time_point now) {
  std::vector<std::shared_ptr<ordered_rank>> worlds;
  {
    const std::lock_guard lock{mutex_};
    worlds = worlds_;
  }
  for (const auto& one : worlds) one->peers->expire(now);
  exported_->expire(now);
  {
    const std::lock_guard lock{mutex_};
    if (now < due_) return;
  }
  const std::lock_guard deciding{deciding_};
  std::vector<std::pair<std::shared_ptr<pipeline_call>, rank>> late;
  {
    const std::lock_guard lock{mutex_};
    due_ = time_point::max();
    for (auto& [number, one] : asks_) {
      if (one.give_up <= now) {
        late.emplace_back(one.call, one.of->pipeline->self());
        one.give_up = time_point::max();
      }
      due_ = std::min(due_, one.give_up);
    }
  }
  for (const auto& [call, self] : late)
    call->fail({.code = errc::deadline_exceeded,
                .effect = effect::unknown_outcome,
                .text = "the controller of the world did not answer: it reported neither that the peers have asked "
                        "nor which ranks are missing; the request keeps its place in the order",
                .rank = self});
}

void order_connection::hand_over(std::shared_ptr<world_order> next, rank self, world_order::operation_check check,
                                 error why, std::function<void()> done) {
  // A task, so that requests that clients have made are passed on before those that they make afterwards.
  queue_.run([this, next = std::move(next), self, check = std::move(check), why = std::move(why),
              done = std::move(done)]() mutable {
    if (!is_closed()) {
      next_self_ = self;
      next_check_ = std::move(check);
      close(std::move(why), std::move(next));
    }
    queue_.retire(std::move(done));
  });
}

void order_connection::pass_on(undecided_ask asked) const {
  pipeline_call& call = *asked.call;
  lane_request again{.what = call.take_operation(),
                     .name = call.name(),
                     .deadline = std::max(nanoseconds{0}, call.deadline() - time_->now()),
                     .reply = call.take_reply(),
                     .where = asked.where,
                     .client = asked.client,
                     .position = asked.position,
                     .site = call.site(),
                     .objection = std::move(asked.objection)};
  if (!again.objection)
    if (error why = next_check_(again.what)) {
      why.rank = next_self_;
      if (reach_of(again.what) != operation_reach::all_ranks) return again.reply.deliver(std::move(why));
      again.objection = std::make_unique<error>(std::move(why));
    }
  next_->ask(next_self_, std::move(again));
}

void order_connection::close(error why) {
  tell_progress();
  close(std::move(why), nullptr);
}

void order_connection::close(error why, std::shared_ptr<world_order> next) {
  why.effect = effect::rejected;
  undecided_asks left;
  std::vector<std::shared_ptr<ordered_rank>> worlds;
  {
    const std::lock_guard lock{mutex_};
    if (closed_) return;
    closed_ = why;
    left = std::exchange(asks_, {});
    worlds = worlds_;
    for (const auto& one : worlds)
      if (!one->closed) one->closed = why;
    is_closed_.store(true, std::memory_order_release);
  }
  if (next) next_ = std::move(next); // by a task of queue_
  for (auto& [number, one] : left) {
    if (next_ && one.of == whole_) {
      pass_on(std::move(one));
      continue;
    }
    error told = why;
    if (!told.rank) told.rank = one.of->pipeline->self();
    // Peers may have received the value of an agree. The next epoch tells it to all ranks.
    if (std::holds_alternative<agree>(one.call->what())) told.effect = effect::unknown_outcome;
    one.call->fail(std::move(told));
  }
  for (const auto& one : worlds) {
    error told = why;
    if (!told.rank) told.rank = one->pipeline->self();
    if (next_ && one == whole_) { // before end(), which refuses them
      const world_entry after = next_->entry();
      if (after.peers) one->peers->hand_over(after.peers);
    }
    end(*one, told);
    one->ended->open();
  }
}

error order_connection::ending() const {
  const std::lock_guard lock{mutex_};
  return ending_;
}

std::size_t order_connection::waiting() const {
  const std::lock_guard lock{mutex_};
  return asks_.size();
}

std::uint64_t order_connection::count_capture(ordered_rank& of, const std::string& name) {
  const std::lock_guard lock{mutex_};
  return ++of.captures_of_name[name];
}

void order_connection::ask_turn(const std::shared_ptr<ordered_rank>& of, turn_terms terms,
                                distributed_order::turn_work work, distributed_order::capture_start start) {
  ordered_rank::asked_turn waiting{std::move(work), std::move(start)};
  queue_.run([this, of, record = request_record{.kind = request_record::form::turn, .turn = std::move(terms)},
              asked = std::move(waiting)]() mutable {
    error why;
    {
      const std::lock_guard lock{mutex_};
      why = of->closed;
      if (!why) of->turns_asked.emplace(++of->turns, std::move(asked));
    }
    if (why) return asked.start ? asked.start(nullptr, why) : asked.work(why, {});
    records_of(*of).add(record);
  });
}

void distributed_order::ask(rank, lane_request asked) {
  through_->ask(self_, std::move(asked));
}

void distributed_order::hold(std::function<void()> quiet) {
  peers()->hold(std::move(quiet));
}

void distributed_order::resume() {
  peers()->resume();
}

void distributed_order::hand_over(std::shared_ptr<world_order> next, rank self, operation_check check, error why,
                                  std::function<void()> done) {
  through_->hand_over(std::move(next), self, std::move(check), std::move(why), std::move(done));
}

void distributed_order::cancel(rank, lane where, std::uint64_t position) {
  through_->write(self_, {.kind = request_record::form::cancel, .where = where, .position = position},
                  [where, position](world_order& next, rank self) { next.cancel(self, where, position); });
}

void distributed_order::withdraw(rank, std::uint64_t client, error why) {
  through_->write(self_, {.kind = request_record::form::withdraw, .client = client, .why = why},
                  [client, why](world_order& next, rank self) { next.withdraw(self, client, why); });
}

void distributed_order::turn(turn_terms asked, turn_work work) {
  through_->ask_turn(self_, std::move(asked), std::move(work), {});
}

void distributed_order::capture(const std::shared_ptr<captured_plan>& plan, nanoseconds deadline, nanoseconds limit,
                                capture_start start) {
  const std::string& name = plan->options().name;
  plan->is_known_by_name(through_->count_capture(*self_, name));
  through_->ask_turn(self_, {.name = name, .deadline = deadline, .capture_limit = limit}, {}, std::move(start));
}

nanoseconds distributed_order::capture_grace() const noexcept {
  return controller_grace;
}

void distributed_order::set_registered(std::vector<std::shared_ptr<registered_pool>> pools) {
  through_->set_registered(self_, std::move(pools));
}

std::shared_ptr<world_order> distributed_order::open_world(std::uint64_t number,
                                                           std::shared_ptr<rank_pipeline> pipeline) {
  return through_->open(number, std::move(pipeline));
}

void distributed_order::decline_world(std::uint64_t number, error why) {
  through_->decline(number, std::move(why));
}

std::shared_ptr<latch> distributed_order::leave(error why) {
  through_->leave(self_, std::move(why), true);
  return self_->ended;
}

std::shared_ptr<latch> distributed_order::close(error why, bool for_good) {
  if (self_->world == 0) {
    through_->close(std::move(why));
    return self_->ended;
  }
  through_->leave(self_, std::move(why), for_good);
  // If only the epoch ends, the directive to end it came behind all decisions. In an order that is held, no other
  // comes.
  return for_good ? self_->ended : nullptr;
}

world_entry distributed_order::entry() {
  return {.peers = peers()};
}

void distributed_order::serve(rank_services what) {
  peers()->serve(std::move(what));
}

error distributed_order::objection_to(std::span<const rank_group> split) const {
  return check_groups_size(split);
}

const std::shared_ptr<peer_requests>& distributed_order::peers() const noexcept {
  return self_->peers;
}

std::size_t distributed_order::waiting() const {
  return through_->waiting();
}

error distributed_order::ending() const {
  return through_->ending();
}

} // namespace troupe
