#include <troupe/completion/reply/reply_promise.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

namespace troupe {

namespace {

/// Returns an exception for \p failure, without its text if there is no memory for the text.
std::exception_ptr exception_of(const error& failure) noexcept {
  try {
    return std::make_exception_ptr(exception{failure});
  } catch (...) {
    try {
      return std::make_exception_ptr(exception{{.code = failure.code, .effect = failure.effect}});
    } catch (...) {
      return std::current_exception();
    }
  }
}

class promise_sink final : public outcome_sink {
public:
  [[nodiscard]] std::future<completion> future() { return promise_.get_future(); }

  void deliver(outcome result) noexcept override {
    if (const error* failure = failure_of(result))
      promise_.set_exception(exception_of(*failure));
    else
      promise_.set_value(std::get<completion>(result));
  }

private:
  std::promise<completion> promise_;
};

} // namespace

reply_promise& reply_promise::operator=(reply_promise&& other) noexcept {
  if (this != &other) {
    abandon();
    sink_ = std::move(other.sink_);
    paid_ = std::move(other.paid_);
  }
  return *this;
}

void reply_promise::deliver(outcome result) noexcept {
  const auto sink = std::exchange(sink_, nullptr);
  if (!sink) return;
  paid_.give_back();
  sink->deliver(std::move(result));
}

void reply_promise::abandon() noexcept {
  if (sink_ == nullptr) return;
  // It is not known here whether the work ran, so the outcome is unknown (ONE-2).
  deliver(error{.code = errc::abandoned,
                .effect = effect::unknown_outcome,
                .text = "the request was dropped before it had an outcome: its actor has ended"});
}

std::pair<reply_promise, std::future<completion>> make_future_promise() {
  auto sink = std::make_unique<promise_sink>();
  auto future = sink->future();
  return {reply_promise{std::move(sink)}, std::move(future)};
}

namespace {

/// The sink of the parts of one request. It answers the request when the last part has been answered.
class reply_group final : public outcome_sink {
public:
  reply_group(reply_promise whole, ticket name, std::size_t part_count)
    : whole_{std::move(whole)}, ticket_{name}, missing_{part_count}, held_by_{part_count} {}

  void deliver(outcome part) noexcept override {
    {
      const std::lock_guard lock{mutex_};
      if (auto* failure = std::get_if<error>(&part))
        take(std::move(*failure));
      else
        take(std::get<completion>(part));
      if (--missing_ > 0) return;
    }
    whole_.deliver(conclusion());
  }

  void release() noexcept override {
    if (held_by_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  /// Returns the listener of the whole request, which counts the parts.
  [[nodiscard]] std::shared_ptr<launch_listener> listener() const noexcept override { return whole_.listener(); }

private:
  void take(error&& failure) {
    may_have_run_ = may_have_run_ || failure.effect == effect::unknown_outcome;
    if (failure.undefined) undefined_.push_back(failure.undefined);
    is_unlisted_ = is_unlisted_ || (failure.effect == effect::unknown_outcome && !failure.undefined);
    if (!failure_) failure_ = std::move(failure);
  }

  void take(const completion& part) {
    may_have_run_ = true;
    if (!latest_) {
      latest_ = part;
      return;
    }
    latest_->times.queued = std::min(latest_->times.queued, part.times.queued);
    latest_->times.launched = std::max(latest_->times.launched, part.times.launched);
    latest_->times.done = std::max(latest_->times.done, part.times.done);
    if (!latest_->agreed) latest_->agreed = part.agreed; // all that have one have the same
  }

  [[nodiscard]] outcome conclusion() {
    if (!failure_) {
      latest_->ticket = ticket_;
      latest_->launch = 0;
      return *latest_;
    }
    failure_->ticket = ticket_;
    // The list is empty if the parts that may have run are done and the others certainly did not run.
    if (may_have_run_ && (!undefined_.empty() || !is_unlisted_)) failure_->undefined = all_undefined();
    return may_have_run_ ? with_unknown_outcome(std::move(*failure_)) : std::move(*failure_);
  }

  /// Returns the lists of all parts, in the order of ranks; null if there is no memory for it.
  [[nodiscard]] std::shared_ptr<const undefined_buffers> all_undefined() const noexcept {
    try {
      auto all = std::make_shared<undefined_buffers>();
      for (const auto& one : undefined_) all->insert(all->end(), one->begin(), one->end());
      std::ranges::stable_sort(*all, {}, &undefined_buffer::rank);
      return all;
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  // The members that each part writes come first, because reply_promise::prefetch() fetches only a few cache lines.
  reply_promise whole_;
  ticket ticket_;
  std::size_t missing_;
  std::atomic<std::size_t> held_by_;
  std::mutex mutex_;
  std::optional<completion> latest_;
  bool may_have_run_ = false;
  bool is_unlisted_ = false; ///< A part whose outcome is unknown has no list.
  std::optional<error> failure_;
  std::vector<std::shared_ptr<const undefined_buffers>> undefined_; ///< Lists of the parts whose outcome is unknown.
};

} // namespace

divided_reply divide_promise(reply_promise whole, ticket name, std::size_t part_count) {
  divided_reply parts;
  parts.reserve(part_count); // first: nothing may fail once the parts refer to the group
  auto* const group = std::make_unique<reply_group>(std::move(whole), name, part_count).release();
  for (std::size_t i = 0; i < part_count; ++i) parts.emplace_back(*group);
  return parts;
}

} // namespace troupe
