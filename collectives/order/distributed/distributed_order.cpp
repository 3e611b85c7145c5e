#include <troupe/collectives/order/distributed/distributed_order.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe {

namespace {

/// Maximum number of unacknowledged batches: one that is being read, and one behind it. At the maximum, the next batch
/// waits.
constexpr std::uint64_t most_unseen = 2;
/// A batch with this many bytes or records is sent in any case.
constexpr std::size_t enough_bytes = std::size_t{16} << 10U;
constexpr std::size_t enough_records = 64;
/// Time beyond a request's deadline in which the controller can report which ranks are missing.
constexpr nanoseconds controller_grace = std::chrono::seconds{1};

} // namespace

/// Terms of a request that its call does not have.
struct distributed_order::asking_terms {
  lane where{};
  std::uint64_t client = 0;
  std::optional<std::uint64_t> position{};
  nanoseconds deadline{0};
};

/// A request that is to be added to a batch.
class distributed_order::asking final : public combining_queue::task {
public:
  asking(distributed_order& above, const asking_terms& terms, std::shared_ptr<pipeline_call> call)
    : above_{above}, terms_{terms}, call_{std::move(call)} {}

  void execute(std::unique_ptr<task>) noexcept override { above_.take(terms_, std::move(call_)); }

private:
  distributed_order& above_;
  asking_terms terms_;
  std::shared_ptr<pipeline_call> call_;
};

distributed_order::distributed_order(std::shared_ptr<rank_pipeline> pipeline, epoch formed_in,
                                     std::shared_ptr<const clock> time, sender send)
  : pipeline_{std::move(pipeline)},
    successes_{pipeline_->successes()},
    epoch_{formed_in},
    time_{std::move(time)},
    send_{std::move(send)},
    in_{pipeline_->world_size()},
    queue_{[this] { end_round(); }} {}

distributed_order::~distributed_order() {
  close({.code = errc::abandoned, .text = "the order of the world has ended before the request was launched"});
}

void distributed_order::ask(rank, lane_request asked) {
  const asking_terms terms{asked.where, asked.client, asked.position, asked.deadline};
  auto call = pipeline_->prepare({.name = asked.name,
                                  .what = std::move(asked.what),
                                  .deadline = asked.deadline,
                                  .reply = std::move(asked.reply),
                                  .from = request_origin{.lane = asked.where, .client = asked.client},
                                  .site = asked.site},
                                 time_->now());
  queue_.submit(std::make_unique<asking>(*this, terms, std::move(call)));
}

void distributed_order::take(const asking_terms& terms, std::shared_ptr<pipeline_call> call) {
  if (!is_closed()) {
    if (error objection = out_.ask(call->what(), terms.where, terms.client, terms.position, terms.deadline)) {
      objection.rank = pipeline_->self();
      return call->fail(std::move(objection));
    }
    const time_point give_up = later(call->deadline(), controller_grace);
    const std::lock_guard lock{mutex_};
    if (!closed_) {
      due_ = std::min(due_, give_up);
      asks_.put({std::move(call), terms.where, terms.client, terms.position, give_up});
      return;
    }
  }
  call->fail(closed_); // closed_ no longer changes
}

void distributed_order::cancel(rank, lane where, std::uint64_t position) {
  queue_.run([this, where, position] {
    if (!is_closed()) out_.cancel(where, position);
  });
}

void distributed_order::withdraw(rank, std::uint64_t client, error why) {
  queue_.run([this, client, why = std::move(why)] {
    if (!is_closed()) out_.withdraw(client, why);
  });
}

void distributed_order::turn(std::function<void()> work) {
  ask_turn({}, {.work = std::move(work)});
}

void distributed_order::capture(std::string name, nanoseconds deadline, nanoseconds limit, capture_start start) {
  ask_turn({.name = std::move(name), .deadline = deadline, .capture_limit = limit}, {.start = std::move(start)});
}

void distributed_order::ask_turn(turn_terms terms, asked_turn asked) {
  queue_.run([this, terms = std::move(terms), asked = std::move(asked)]() mutable {
    {
      const std::lock_guard lock{mutex_};
      if (!closed_) {
        turns_asked_.emplace(++turns_, std::move(asked));
        return out_.turn(terms);
      }
    }
    if (asked.start) asked.start(nullptr, closed_); // closed_ no longer changes
  });
}

std::shared_ptr<distributed_capture> distributed_order::open_capture(std::uint64_t place) {
  // A rank may still be in the capture when the order has ended; then nothing is sent.
  const auto send = [weak = weak_from_this()](const std::function<void(request_writer&)>& write) {
    const auto self = weak.lock();
    if (!self) return;
    self->queue_.run([by = self.get(), write] {
      if (!by->is_closed()) write(by->out_);
    });
  };
  return std::make_shared<distributed_capture>(distributed_capture::channel{
      .launch =
          [send, place](std::span<const operation* const> all, bool divisible) {
            send([place, outline = outline_of_launch(all, divisible)](request_writer& out) {
              out.launch_in_capture(place, outline);
            });
          },
      .end = [send, place] { send([place](request_writer& out) { out.end_capture(place); }); },
      .fail = [send, place](
                  const error& why) { send([place, why](request_writer& out) { out.fail_capture(place, why); }); }});
}

bool distributed_order::may_send() const noexcept {
  return sent_.load() - seen_.load() < most_unseen || out_.size_bytes() >= enough_bytes ||
         out_.records() >= enough_records;
}

void distributed_order::end_round() noexcept {
  const std::uint64_t succeeded = successes_->value();
  if ((out_.empty() && (!is_telling_ || succeeded == told_)) || is_closed()) return;
  is_telling_ = false;
  if (!may_send()) {
    // Set before the second check. A concurrent receive() either sees the flag, or the second check sees its update.
    holds_back_.store(true);
    if (!may_send()) return;
  }
  if (holds_back_.load(std::memory_order_relaxed)) holds_back_.store(false);
  const std::uint64_t number = sent_.load(std::memory_order_relaxed) + 1;
  sent_.store(number);
  told_ = succeeded;
  send_(out_.take({.epoch = epoch_, .number = number, .succeeded = succeeded}));
}

error distributed_order::receive(std::string_view batch) {
  const std::lock_guard deciding{deciding_};
  wire_reader in{batch};
  const batch_header header = batch_header::read(in);
  if (in.ok() && header.epoch < epoch_) return {};
  if (in.ok() && header.epoch > epoch_) in.refuse("it is of an epoch that has not begun here");
  if (in.ok() && header.number != received_ + 1) in.refuse("batches before it are missing, or it is a duplicate");
  if (in.ok() && (header.seen > sent_.load() || header.seen < seen_.load()))
    in.refuse("it confirms batches that have not been sent");
  if (in.ok()) {
    received_ = header.number;
    seen_.store(header.seen);
    if (holds_back_.load()) queue_.run([] {}); // the end of its round sends the batch
  }
  error failure;
  steps_.clear();
  decision_record one;
  {
    const std::lock_guard lock{mutex_};
    if (closed_) return {};
    while (!failure && in_.next(in, one)) failure = decide(one);
  }
  // Executes the steps before the failure too, because they were decided for the peers as well. The lock is not held,
  // because an answered client may send another request.
  for (step& next : steps_) follow(next);
  steps_.clear();
  if (!failure) failure = in.failure("what the controller has decided for rank " + to_string(pipeline_->self()));
  if (failure) failure.rank = pipeline_->self();
  return failure;
}

void distributed_order::follow(step& next) {
  if (auto* const call = std::get_if<std::shared_ptr<pipeline_call>>(&next)) {
    (*call)->all_have_asked();
    (*call)->released_as(++released_);
    pipeline_->submit(std::move(*call));
  } else if (auto* const refused = std::get_if<refused_call>(&next)) {
    refused->call->fail(std::move(refused->why));
  } else {
    std::get<std::function<void()>>(next)();
  }
}

error distributed_order::decide(decision_record& one) {
  if (one.kind == decision_record::form::turn) return decide_turn(one);
  if (one.kind == decision_record::form::capture) return decide_capture(one);
  auto found = asks_.take(one.number);
  if (!found)
    return {.code = errc::internal,
            .text = "the controller has decided request " + std::to_string(one.number) + " of rank " +
                    to_string(pipeline_->self()) + ", which does not wait for a decision"};
  if (one.kind == decision_record::form::release) {
    if (const auto position = one.position ? one.position : found->position)
      found->call->stands_at({found->where, *position, found->client});
    steps_.emplace_back(std::move(found->call));
    return {};
  }
  if (one.absence && one.absence_is_new) {
    auto& mine = one.absence->ranks[static_cast<std::size_t>(pipeline_->self().value())];
    pipeline_progress progress = pipeline_->progress();
    mine.last_launched = std::move(progress.launched);
    mine.last_finished = std::move(progress.finished);
  }
  one.why.absence = one.absence;
  if (!one.why.rank) one.why.rank = pipeline_->self();
  steps_.emplace_back(refused_call{std::move(found->call), std::move(one.why)});
  return {};
}

error distributed_order::decide_turn(decision_record& one) {
  const auto found = turns_asked_.find(one.number);
  if (found == turns_asked_.end())
    return {.code = errc::internal, .text = "the controller has decided a turn that does not wait for a decision"};
  asked_turn asked = std::move(found->second);
  turns_asked_.erase(found);
  if (!one.why) ++turns_granted_;
  if (asked.start) {
    // Made now, because the next decision may be that the capture has failed.
    const auto made = one.why ? nullptr : captures_[turns_granted_] = open_capture(turns_granted_);
    if (one.why && !one.why.rank) one.why.rank = pipeline_->self();
    steps_.emplace_back([start = std::move(asked.start), made, why = std::move(one.why)] { start(made, why); });
  } else if (!one.why) {
    steps_.emplace_back(std::move(asked.work));
  }
  return {};
}

error distributed_order::decide_capture(decision_record& one) {
  const auto found = captures_.find(one.number);
  if (found == captures_.end())
    return {.code = errc::internal, .text = "the controller has decided about a capture that is not under way"};
  const auto capture = found->second;
  const bool is_last = capture->has_ended() || one.why;
  if (is_last) captures_.erase(found);
  steps_.emplace_back([capture, agreed = one.agreed, why = std::move(one.why)] { capture->answer(why, agreed); });
  return {};
}

void distributed_order::tell_progress() {
  if (is_closed()) return;
  queue_.run([this, now = pipeline_->progress()]() mutable {
    is_telling_ = true;
    if (is_closed() || (now.launched == told_progress_.launched && now.finished == told_progress_.finished)) return;
    out_.progress(now.launched, now.finished);
    told_progress_ = std::move(now);
  });
}

void distributed_order::expire(time_point now) {
  {
    const std::lock_guard lock{mutex_};
    if (now < due_) return;
  }
  const std::lock_guard deciding{deciding_};
  std::vector<std::pair<std::uint64_t, undecided_ask>> late;
  {
    const std::lock_guard lock{mutex_};
    due_ = time_point::max();
    asks_.visit([&](std::uint64_t number, const undecided_ask& one) {
      if (one.give_up <= now)
        late.emplace_back(number, undecided_ask{});
      else
        due_ = std::min(due_, one.give_up);
    });
    for (auto& [number, one] : late) one = *asks_.take(number);
  }
  for (auto& [number, one] : late) {
    one.call->fail({.code = errc::deadline_exceeded,
                    .effect = effect::unknown_outcome,
                    .text = "the controller of the world did not answer: it reported neither that the peers have asked "
                            "nor which ranks are missing; the request stays in its place in the order",
                    .rank = pipeline_->self()});
    one.give_up = time_point::max();
  }
  const std::lock_guard lock{mutex_};
  if (closed_) return; // all have been answered
  for (auto& [number, one] : late) asks_.put_back(number, std::move(one));
}

void distributed_order::close(error why) {
  tell_progress();
  why.effect = effect::rejected;
  std::vector<undecided_ask> left;
  std::map<std::uint64_t, asked_turn> dropped;
  std::map<std::uint64_t, std::shared_ptr<distributed_capture>> captures;
  {
    const std::lock_guard lock{mutex_};
    if (closed_) return;
    closed_ = why;
    is_closed_.store(true, std::memory_order_release);
    left = asks_.take_all();
    dropped.swap(turns_asked_);
    captures.swap(captures_);
  }
  if (!why.rank) why.rank = pipeline_->self();
  for (const undecided_ask& one : left) one.call->fail(why);
  for (const auto& [number, one] : dropped)
    if (one.start) one.start(nullptr, why);
  for (const auto& [place, one] : captures) one->answer(why, 0);
}

std::size_t distributed_order::waiting() const {
  const std::lock_guard lock{mutex_};
  return asks_.size();
}

std::uint64_t ask_table::put(undecided_ask one) {
  undecided_ask& place = at(last_ + 1);
  if (place.call) overtaken_.emplace(last_ + 1 - ring_length, std::exchange(place, {}));
  place = std::move(one);
  ++size_;
  return ++last_;
}

std::optional<undecided_ask> ask_table::take(std::uint64_t number) {
  if (number == 0 || number > last_) return std::nullopt;
  std::optional<undecided_ask> found;
  if (last_ - number < ring_length)
    if (undecided_ask& place = at(number); place.call) found = std::exchange(place, {});
  if (!found && !overtaken_.empty())
    if (const auto place = overtaken_.find(number); place != overtaken_.end()) {
      found = std::move(place->second);
      overtaken_.erase(place);
    }
  if (found) --size_;
  return found;
}

void ask_table::put_back(std::uint64_t number, undecided_ask one) {
  overtaken_.emplace(number, std::move(one));
  ++size_;
}

std::vector<undecided_ask> ask_table::take_all() {
  std::vector<undecided_ask> all;
  all.reserve(size_);
  for (auto& [number, one] : overtaken_) all.push_back(std::move(one));
  for (undecided_ask& one : ring_)
    if (one.call) all.push_back(std::exchange(one, {}));
  overtaken_.clear();
  size_ = 0;
  return all;
}

} // namespace troupe
