#include <troupe/completion/reply/overlap.hpp>

#include <algorithm>
#include <mutex>
#include <optional>

namespace troupe {

/// The shared state of both steps of one request. The launchers' threads report the first step, and the poller or an
/// actor reports the second. The client may redeem the outcome at any time.
class outcome_claim::record final : public launch_listener, public std::enable_shared_from_this<record> {
public:
  record(std::shared_ptr<value_promise<troupe::enqueued>> first, std::size_t part_count)
    : first_{std::move(first)}, missing_{part_count} {
    enqueued_.ranks.reserve(part_count);
  }

  void enqueued(const launch_mark& mark) noexcept override {
    std::shared_ptr<value_promise<troupe::enqueued>> first;
    {
      const std::lock_guard lock{mutex_};
      if (!first_) return; // the request has failed meanwhile
      enqueued_.ticket = mark.ticket;
      enqueued_.epoch = mark.epoch;
      enqueued_.ranks.push_back(mark);
      if (--missing_ > 0) return;
      first = std::exchange(first_, nullptr);
    }
    std::ranges::sort(enqueued_.ranks, {}, &launch_mark::rank);
    enqueued_.outcome = outcome_claim{shared_from_this()};
    first->deliver(std::move(enqueued_));
  }

  void conclude(outcome result) noexcept {
    std::shared_ptr<value_promise<troupe::enqueued>> first;
    reply_promise asker;
    bool is_asked = false;
    std::optional<error> failure;
    {
      const std::lock_guard lock{mutex_};
      first = std::exchange(first_, nullptr);
      if (const error* why = failure_of(result)) failure = *why;
      is_asked = is_asked_;
      if (is_asked)
        asker = std::move(asker_);
      else
        result_ = std::move(result);
    }
    if (first && failure) first->deliver(std::move(*failure));
    if (is_asked) asker.deliver(std::move(result));
  }

  void redeem(reply_promise to) {
    std::optional<outcome> result;
    {
      const std::lock_guard lock{mutex_};
      if (std::exchange(is_asked_, true)) {
        result =
            error{.code = errc::invalid_argument,
                  .text = "the outcome has already been redeemed and is delivered only once: keep the first reply"};
      } else if (result_) {
        result = std::exchange(result_, std::nullopt);
      } else {
        asker_ = std::move(to);
        return;
      }
    }
    to.deliver(std::move(*result));
  }

private:
  std::mutex mutex_;
  std::shared_ptr<value_promise<troupe::enqueued>> first_; ///< Until delivered.
  troupe::enqueued enqueued_;
  std::size_t missing_;
  std::optional<outcome> result_; ///< Held until the client redeems the claim.
  reply_promise asker_;
  bool is_asked_ = false;
};

namespace {

class overlap_sink final : public outcome_sink {
public:
  explicit overlap_sink(std::shared_ptr<outcome_claim::record> shared) noexcept : record_{std::move(shared)} {}
  void deliver(outcome result) noexcept override { record_->conclude(std::move(result)); }
  [[nodiscard]] std::shared_ptr<launch_listener> listener() const noexcept override { return record_; }

private:
  std::shared_ptr<outcome_claim::record> record_;
};

} // namespace

void outcome_claim::redeem(reply_promise to) const {
  if (record_) return record_->redeem(std::move(to));
  to.deliver(error{.code = errc::invalid_argument,
                   .text = "this claim to an outcome is empty: use one that a request has returned"});
}

reply_promise make_overlapped_promise(std::shared_ptr<value_promise<enqueued>> first, std::size_t part_count) {
  return reply_promise{
      std::make_unique<overlap_sink>(std::make_shared<outcome_claim::record>(std::move(first), part_count))};
}

reply_promise make_overlapped_promise(std::shared_ptr<value_promise<enqueued>> first, std::size_t part_count,
                                      reply_promise second) {
  const auto shared = std::make_shared<outcome_claim::record>(std::move(first), part_count);
  shared->redeem(std::move(second));
  return reply_promise{std::make_unique<overlap_sink>(shared)};
}

} // namespace troupe
