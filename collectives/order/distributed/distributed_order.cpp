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
  queue_.run([this, work = std::move(work)]() mutable {
    {
      const std::lock_guard lock{mutex_};
      if (closed_) return;
      turns_asked_.push_back(std::move(work));
    }
    out_.turn();
  });
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
  if (one.kind == decision_record::form::turn) {
    if (turns_asked_.empty())
      return {.code = errc::internal, .text = "the controller has granted a turn that was not requested"};
    steps_.emplace_back(std::move(turns_asked_.front()));
    turns_asked_.pop_front();
    return {};
  }
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

void distributed_order::tell_successes() {
  if (!is_closed() && successes_->value() != told_.load()) queue_.run([this] { is_telling_ = true; });
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
  tell_successes();
  why.effect = effect::rejected;
  std::vector<undecided_ask> left;
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock{mutex_};
    if (closed_) return;
    closed_ = why;
    is_closed_.store(true, std::memory_order_release);
    left = asks_.take_all();
    dropped.swap(turns_asked_);
  }
  if (!why.rank) why.rank = pipeline_->self();
  for (const undecided_ask& one : left) one.call->fail(why);
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
