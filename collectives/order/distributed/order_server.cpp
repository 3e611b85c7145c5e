#include <troupe/collectives/order/distributed/order_server.hpp>
#include <troupe/completion/sources/recycling.hpp>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

namespace troupe {

/// A rank's request, as far as the controller knows it.
class order_server::request final : public sequenced, public recycled {
public:
  request(const sequencing_terms& terms, std::uint64_t number, std::shared_ptr<const operation_outline> what)
    : sequenced{terms}, number_{number}, names_position_{terms.position.has_value()}, what_{std::move(what)} {}

  [[nodiscard]] const operation& what() const noexcept override { return what_->what; }
  [[nodiscard]] compact_signature sketch() const noexcept override { return what_->sketch; }
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  /// Returns the position if the client did not give it.
  [[nodiscard]] std::optional<std::uint64_t> position_to_tell() const noexcept {
    return names_position_ ? std::nullopt : terms().position;
  }

private:
  std::uint64_t number_;
  bool names_position_;
  std::shared_ptr<const operation_outline> what_;
};

struct order_server::connection {
  connection(rank one, epoch of) : self{one}, out{of} {}

  rank self;
  request_reader in{};
  decision_writer out;
  std::uint64_t received = 0; ///< Number of batches received.
  std::uint64_t asked = 0;    ///< Number of requests received.
  std::shared_ptr<success_count> successes = std::make_shared<success_count>();
  std::optional<operation_mark> launched{}, finished{}; ///< As the rank told last.
};

order_server::order_server(sequencer_limits limits) : limits_{limits} {}
order_server::~order_server() = default;

void order_server::open(epoch of, int world_size) {
  if (ranks_.size() == 1) log_.forget(); // a rank that is alone orders its requests by itself
  auto made = std::make_unique<sequencer>(limits_);
  world_ = made->open_world(world_size);
  order_ = std::move(made);
  epoch_ = of;
  closed_ = false;
  turns_.open(world_size, limits_.lead);
  ranks_.clear();
  std::vector<std::shared_ptr<const success_count>> successes;
  for (int r = 0; r < world_size; ++r) successes.push_back(ranks_.emplace_back(rank{r}, of).successes);
  log_.begin(of, std::move(successes));
}

void order_server::close(error why) {
  if (!order_ || std::exchange(closed_, true)) return;
  order_->close_world(world_, why, effects_);
  settle();
}

error order_server::receive(rank from, std::string_view batch, time_point now) {
  const std::string name = "a batch of rank " + to_string(from);
  if (from.value() < 0 || static_cast<std::size_t>(from.value()) >= ranks_.size())
    return {.code = errc::internal,
            .text = name + " has arrived at a world of " + std::to_string(ranks_.size()) + " ranks",
            .rank = from};
  connection& by = ranks_[static_cast<std::size_t>(from.value())];
  wire_reader in{batch};
  const batch_header header = batch_header::read(in);
  if (in.ok() && header.epoch < epoch_) return {};
  if (in.ok() && header.epoch > epoch_) in.refuse("it is of an epoch that has not begun");
  if (in.ok() && header.number != by.received + 1) in.refuse("batches before it are missing, or it is a duplicate");
  if (in.ok() && (header.succeeded > log_.released_to(from) || header.succeeded < by.successes->value()))
    in.refuse("it counts successes of requests that were not released");
  if (in.ok()) {
    by.out.has_seen(by.received = header.number);
    by.successes->set(header.succeeded);
  }
  request_record one;
  error failure;
  while (!failure && by.in.next(in, one)) switch (one.kind) {
      case request_record::form::ask: ask(by, one, now); break;
      case request_record::form::cancel:
        if (!one.why) static_cast<void>(order_->cancel(world_, from, one.where, *one.position, effects_));
        break;
      case request_record::form::withdraw: order_->withdraw(world_, from, one.client, one.why, effects_); break;
      case request_record::form::turn:
        settle(); // operations that were released earlier go first
        if (!closed_) turns_.ask(from, std::move(one.turn), now, turn_answers_);
        tell_turns();
        break;
      case request_record::form::capture_launch:
      case request_record::form::capture_end:
      case request_record::form::capture_failure:
        failure = turns_.take(from, one, turn_answers_);
        tell_turns();
        break;
      case request_record::form::progress:
        by.launched = std::move(one.launched);
        by.finished = std::move(one.finished);
        break;
    }
  settle();
  if (!failure) failure = in.failure(name);
  if (failure) failure.rank = from;
  return failure;
}

void order_server::ask(connection& from, request_record& asked, time_point now) {
  const std::uint64_t number = ++from.asked;
  if (asked.why) {
    asked.why.rank = from.self;
    return from.out.refuse(number, asked.why, nullptr);
  }
  const sequencing_terms terms{.world = world_,
                               .rank = from.self,
                               .lane = asked.where,
                               .client = asked.client,
                               .position = asked.position,
                               .asked = now,
                               .deadline = later(now, asked.deadline)};
  order_->ask(std::make_unique<request>(terms, number, std::move(asked.what)), effects_);
}

void order_server::tell_turns() {
  for (const turn_answer& one : turn_answers_) {
    decision_writer& out = ranks_[static_cast<std::size_t>(one.to.value())].out;
    if (one.kind == turn_answer::form::turn)
      out.turn(one.number, one.why);
    else
      out.capture(one.number, one.agreed, one.why);
  }
  turn_answers_.clear();
}

void order_server::settle() {
  std::size_t next = 0;
  for (const std::size_t end : effects_.ends) {
    const auto& first = static_cast<const request&>(*effects_.released[next]);
    participants_.clear();
    for (; next < end; ++next) {
      const auto& released = static_cast<const request&>(*effects_.released[next]);
      participants_.push_back(released.terms().rank);
      ranks_[static_cast<std::size_t>(released.terms().rank.value())].out.release(released.number(),
                                                                                  released.position_to_tell());
    }
    log_.released(epoch_, first.terms().lane, participants_, commit_of(first.what()));
  }
  for (auto& one : effects_.refused) {
    const auto& refused = static_cast<const request&>(*one.what);
    ranks_[static_cast<std::size_t>(refused.terms().rank.value())].out.refuse(refused.number(), one.why,
                                                                              completed(one.absence));
  }
  for (const auto& one : effects_.straggling) straggling_.push_back(completed(one));
  effects_.clear();
}

std::shared_ptr<absence_report> order_server::completed(const std::shared_ptr<absence_report>& report) {
  if (!report || report == incomplete_) return report ? completed_ : nullptr;
  incomplete_ = report;
  completed_ = std::make_shared<absence_report>(*report); // a copy, because a listener may be reading an earlier one
  for (auto& one : completed_->ranks) {
    const connection& from = ranks_[static_cast<std::size_t>(one.rank.value())];
    one.last_launched = from.launched;
    one.last_finished = from.finished;
  }
  return completed_;
}

void order_server::expire(time_point now) {
  if (!order_) return;
  order_->expire(now, effects_);
  settle();
  turns_.expire(now, turn_answers_);
  tell_turns();
}

time_point order_server::next_due() const noexcept {
  return order_ ? std::min(order_->next_due(), turns_.next_due()) : time_point::max();
}

std::string order_server::take_outgoing(rank to) {
  const auto index = static_cast<std::size_t>(to.value());
  return to.value() >= 0 && index < ranks_.size() ? ranks_[index].out.take() : std::string{};
}

std::uint64_t order_server::batches_for(rank to) const noexcept {
  const auto index = static_cast<std::size_t>(to.value());
  return to.value() >= 0 && index < ranks_.size() ? ranks_[index].out.batches() : 0;
}

std::vector<std::shared_ptr<const absence_report>> order_server::take_straggling() {
  return std::exchange(straggling_, {});
}

std::size_t order_server::waiting() const noexcept {
  return order_ ? order_->waiting() : 0;
}

} // namespace troupe
